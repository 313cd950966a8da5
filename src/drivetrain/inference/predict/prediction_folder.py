"""The folder that `predict` writes into, where nothing that is a user's own may be overwritten."""

import json
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from drivetrain.catalogue.data_sets import is_external_dataset
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import write_atomically
from drivetrain.inference.model.restore import TrainedRun
from drivetrain.inference.predict.prediction_note import (
    PredictionNote,
    is_changed,
    note_digests,
    read_note,
    write_note,
)

__all__ = [
    "note_files",
    "noted_files",
    "require_free_names",
    "require_outside_data",
    "table_names",
    "write_tables",
]

_DATASETS_OF_IMAGE_FILES = ("gc-imagenet", "image-folder", "imagenet", "isbi2012", "mask-folder")


def require_outside_data(folder: Path, run: TrainedRun) -> None:
    """Refuses the folder that a run was trained on, and any inside it; the run's own may lie there."""
    recipe, output = run.recipe, folder.resolve()
    has_files = recipe.dataset in _DATASETS_OF_IMAGE_FILES or is_external_dataset(recipe.dataset)
    if recipe.data_dir is None or not has_files or output.is_relative_to(run.directory.path.resolve()):
        return
    if output.is_relative_to(Path(recipe.data_dir).resolve()):
        raise BadInputError(
            f"--output {folder} lies in {recipe.data_dir}, the --data-dir that RUN was trained on, where "
            f"files of your own could be overwritten; --output {run.directory.predictions} works."
        )


def require_free_names(folder: Path, names: Sequence[str]) -> None:
    """Refuses a folder where such a file is a user's own: none that `predict` noted, or changed since."""
    note = read_note(folder)
    own = next((name for name in names if name not in note.written and (folder / name).exists()), None)
    if own is not None:
        raise BadInputError(
            f"--output {folder} holds {own}, and no note that `predict` wrote it, so it may "
            f"be your own; --output {_free_folder(folder)} works."
        )
    changed = next((name for name in names if is_changed(folder / name, note.digests.get(name))), None)
    if changed is not None:
        raise BadInputError(
            f"--output {folder} holds {changed}, which has been changed since `predict` wrote it and would "
            f"be overwritten; --output {_free_folder(folder)} works."
        )


def note_files(folder: Path, names: Sequence[str]) -> None:
    """Makes the folder and notes what is to be written, so that an interrupted `predict` can be repeated."""
    folder.mkdir(parents=True, exist_ok=True)
    note = read_note(folder)
    new = frozenset(names)
    kept = {name: digest for name, digest in note.digests.items() if name not in new}
    write_note(folder, PredictionNote(written=note.written | new, digests=kept, latest=tuple(names)))


def noted_files(folder: Path) -> frozenset[str]:
    """The names of what `predict` has written into a folder, or has begun to write."""
    return read_note(folder).written


def table_names(formats: Sequence[str]) -> list[str]:
    """The files that tell of all predictions together, one for each format."""
    return [f"predictions.{kind}" for kind in formats]


def write_tables(
    folder: Path,
    rows: list[dict[str, Any]],
    formats: Sequence[str],
    *,
    as_csv: Callable[[list[dict[str, Any]]], str],
) -> None:
    """Writes them, the last of what was noted; JSON holds the rows as they are."""
    for kind, name in zip(formats, table_names(formats), strict=True):
        content = as_csv(rows) if kind == "csv" else json.dumps(rows, indent=2) + "\n"
        write_atomically(folder / name, content.encode())
    note_digests(folder)


def _free_folder(folder: Path) -> Path:
    """A folder beside it that is not there yet."""
    stem = folder.name or "predictions"
    return next(path for n in count(2) if not (path := folder.parent / f"{stem}-{n}").exists())
