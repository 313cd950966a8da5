"""updates.npz: what every update left behind, beside the checkpoints."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.program.records import UpdateRecords
from drivetrain.run.files import write_atomically


def save_history(path: Path, records: UpdateRecords, *, updates: int) -> None:
    """Writes the values of all updates so far."""
    content = io.BytesIO()
    columns: dict[str, Any] = {name: records.read(name, 0, updates) for name in records.columns}
    np.savez(content, **columns)
    write_atomically(path, content.getvalue())


def load_history(path: Path) -> dict[str, NDArray[np.float64]]:
    """The values written so far; empty when there is no sound file."""
    try:
        with np.load(path, allow_pickle=False) as columns:
            return {name: columns[name] for name in columns.files}
    except (OSError, ValueError, zipfile.BadZipFile):
        return {}
