"""The note in a folder of predictions: which files are `predict`'s own, and what they held."""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

from drivetrain.core.files import read_json, write_json

__all__ = ["PredictionNote", "changed_file", "is_changed", "note_digests", "read_note", "write_note"]

_RECORD = ".drivetrain-predict.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionNote:
    """What `predict` wrote into a folder, what the files held that were finished, and which came latest."""

    written: frozenset[str] = frozenset()
    digests: dict[str, str] = field(default_factory=dict)
    latest: tuple[str, ...] = ()


def read_note(folder: Path) -> PredictionNote:
    """Older notes are names alone; one that cannot be read is none."""
    try:
        stored = read_json(folder / _RECORD)
        return PredictionNote(
            written=frozenset(stored["written"]),
            digests=dict(stored.get("sha256", {})),
            latest=tuple(stored.get("latest", ())),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return PredictionNote()


def write_note(folder: Path, note: PredictionNote) -> None:
    record = {"written": sorted(note.written), "sha256": note.digests, "latest": sorted(note.latest)}
    write_json(folder / _RECORD, record)


def note_digests(folder: Path) -> None:
    """Notes what the files of the latest `predict` hold, by which a later change of them shows."""
    note = read_note(folder)
    found = {name: digest for name in note.latest if (digest := _digest(folder / name)) is not None}
    write_note(folder, replace(note, digests={**note.digests, **found}))


def is_changed(path: Path, digest: str | None) -> bool:
    """One that is gone is not changed: nothing is lost when it is written again."""
    return digest is not None and path.exists() and _digest(path) != digest


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def changed_file(folder: Path) -> str | None:
    """A file that is not as `predict` left it, where there is one."""
    digests = read_note(folder).digests
    return next((name for name, digest in digests.items() if is_changed(folder / name, digest)), None)
