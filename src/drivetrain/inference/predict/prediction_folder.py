"""The output folder of `predict`: refuses to overwrite files of the user, and writes the tables."""

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

_DATASETS_OF_IMAGE_FILES = (
    "gc-imagenet",
    "image-folder",
    "image-table",
    "imagenet",
    "isbi2012",
    "mask-folder",
)


def require_outside_data(folder: Path, run: TrainedRun) -> None:
    """Refuses to write into the training data's folder or below; the run's own folder may be there."""
    recipe, output = run.recipe, folder.resolve()
    has_files = recipe.dataset in _DATASETS_OF_IMAGE_FILES or is_external_dataset(recipe.dataset)
    if recipe.data_dir is None or not has_files or output.is_relative_to(run.directory.path.resolve()):
        return
    if output.is_relative_to(Path(recipe.data_dir).resolve()):
        raise BadInputError(
            f"--output {folder} is inside {recipe.data_dir}, the --data-dir that RUN was trained on, where "
            f"your own files could be overwritten; --output {run.directory.predictions} works."
        )


def require_free_names(folder: Path, names: Sequence[str]) -> None:
    """Raises if one of these files exists and `predict` did not write it, or it was changed since."""
    note = read_note(folder)
    own = next((name for name in names if name not in note.written and (folder / name).exists()), None)
    if own is not None:
        raise BadInputError(
            f"--output {folder} contains {own}, and there is no record that `predict` wrote it, so it may "
            f"be your own file; --output {_free_folder(folder)} works."
        )
    changed = next((name for name in names if is_changed(folder / name, note.digests.get(name))), None)
    if changed is not None:
        raise BadInputError(
            f"--output {folder} contains {changed}, which was changed after `predict` wrote it and would "
            f"be overwritten; --output {_free_folder(folder)} works."
        )


def note_files(folder: Path, names: Sequence[str]) -> None:
    """Creates the folder and records the names to be written, so an interrupted `predict` can be repeated."""
    folder.mkdir(parents=True, exist_ok=True)
    note = read_note(folder)
    new = frozenset(names)
    kept = {name: digest for name, digest in note.digests.items() if name not in new}
    write_note(folder, PredictionNote(written=note.written | new, digests=kept, latest=tuple(names)))


def noted_files(folder: Path) -> frozenset[str]:
    """The names of the files that `predict` has written, or begun to write, into a folder."""
    return read_note(folder).written


def table_names(formats: Sequence[str]) -> list[str]:
    """The names of the summary tables, one per format."""
    return [f"predictions.{kind}" for kind in formats]


def write_tables(
    folder: Path,
    rows: list[dict[str, Any]],
    formats: Sequence[str],
    *,
    as_csv: Callable[[list[dict[str, Any]]], str],
) -> None:
    """Writes the summary tables, as the last of the recorded files; JSON contains the rows unchanged."""
    for kind, name in zip(formats, table_names(formats), strict=True):
        content = as_csv(rows) if kind == "csv" else json.dumps(rows, indent=2) + "\n"
        write_atomically(folder / name, content.encode())
    note_digests(folder)


def _free_folder(folder: Path) -> Path:
    """A folder beside it that does not exist yet."""
    stem = folder.name or "predictions"
    return next(path for n in count(2) if not (path := folder.parent / f"{stem}-{n}").exists())
