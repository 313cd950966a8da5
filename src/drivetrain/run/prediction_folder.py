"""The folder that `predict` writes into, where nothing that is a user's own may be overwritten."""

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

from drivetrain.data.info import is_external_dataset
from drivetrain.errors import BadInputError
from drivetrain.run.files import read_json, write_atomically, write_json
from drivetrain.run.restore import TrainedRun

__all__ = [
    "note_files",
    "noted_files",
    "require_free_names",
    "require_outside_data",
    "table_names",
    "write_tables",
]

_RECORD = ".drivetrain-predict.json"
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
    note = _read_note(folder)
    own = next((name for name in names if name not in note.written and (folder / name).exists()), None)
    if own is not None:
        raise BadInputError(
            f"--output {folder} holds {own}, and no note that `predict` wrote it, so it may "
            f"be your own; --output {_free_folder(folder)} works."
        )
    changed = next((name for name in names if _is_changed(folder / name, note.digests.get(name))), None)
    if changed is not None:
        raise BadInputError(
            f"--output {folder} holds {changed}, which has been changed since `predict` wrote it and would "
            f"be overwritten; --output {_free_folder(folder)} works."
        )


def note_files(folder: Path, names: Sequence[str]) -> None:
    """Makes the folder and notes what is to be written, so that an interrupted `predict` can be repeated."""
    folder.mkdir(parents=True, exist_ok=True)
    note = _read_note(folder)
    kept = {name: digest for name, digest in note.digests.items() if name not in names}
    _write_note(folder, _Note(written=note.written.union(names), digests=kept, latest=tuple(names)))


def noted_files(folder: Path) -> frozenset[str]:
    """The names of what `predict` has written into a folder, or has begun to write."""
    return _read_note(folder).written


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
    _note_digests(folder)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Note:
    """What `predict` wrote into a folder, what the files held that were finished, and which came latest."""

    written: frozenset[str] = frozenset()
    digests: dict[str, str] = field(default_factory=dict)
    latest: tuple[str, ...] = ()


def _read_note(folder: Path) -> _Note:
    """Older notes are names alone; one that cannot be read is none."""
    try:
        stored = read_json(folder / _RECORD)
        return _Note(
            written=frozenset(stored["written"]),
            digests=dict(stored.get("sha256", {})),
            latest=tuple(stored.get("latest", ())),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return _Note()


def _write_note(folder: Path, note: _Note) -> None:
    record = {"written": sorted(note.written), "sha256": note.digests, "latest": sorted(note.latest)}
    write_json(folder / _RECORD, record)


def _note_digests(folder: Path) -> None:
    """Notes what the files of the latest `predict` hold, by which a later change of them shows."""
    note = _read_note(folder)
    found = {name: digest for name in note.latest if (digest := _digest(folder / name)) is not None}
    _write_note(folder, replace(note, digests={**note.digests, **found}))


def _is_changed(path: Path, digest: str | None) -> bool:
    """One that is gone is not changed: nothing is lost when it is written again."""
    return digest is not None and path.exists() and _digest(path) != digest


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def _free_folder(folder: Path) -> Path:
    """A folder beside it that is not there yet."""
    stem = folder.name or "predictions"
    return next(path for n in count(2) if not (path := folder.parent / f"{stem}-{n}").exists())
