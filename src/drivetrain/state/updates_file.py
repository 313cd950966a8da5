"""Writes updates.npz: loss, score, learning rate and other values of every update."""

from pathlib import Path

from drivetrain.program.records import UpdateRecords
from drivetrain.store.update_history import write_history

__all__ = ["save_history"]


def save_history(path: Path, records: UpdateRecords, *, updates: int) -> None:
    """Writes the values of all updates so far."""
    write_history(path, {name: records.read(name, 0, updates) for name in records.columns})
