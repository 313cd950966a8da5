"""The record in a folder of predictions: which files `predict` wrote, with their checksums."""

import hashlib
from dataclasses import dataclass, field, replace
from pathlib import Path

from drivetrain.core.files import read_json, write_json

__all__ = ["PredictionNote", "changed_file", "is_changed", "note_digests", "read_note", "write_note"]

_RECORD = ".drivetrain-predict.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionNote:
    """The files that `predict` wrote, the checksums of finished ones, and the files of the latest call."""

    written: frozenset[str] = frozenset()
    digests: dict[str, str] = field(default_factory=dict)
    latest: tuple[str, ...] = ()


def read_note(folder: Path) -> PredictionNote:
    """The record of a folder; empty if it is missing or unreadable. Older records have names only."""
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
    """Records the checksums of the latest `predict`, so that later changes can be noticed."""
    note = read_note(folder)
    found = {name: digest for name in note.latest if (digest := _digest(folder / name)) is not None}
    write_note(folder, replace(note, digests={**note.digests, **found}))


def is_changed(path: Path, digest: str | None) -> bool:
    """Whether a file differs from its checksum; a deleted file does not count, nothing is lost with it."""
    return digest is not None and path.exists() and _digest(path) != digest


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return None


def changed_file(folder: Path) -> str | None:
    """The name of a file that was changed after `predict` wrote it, or None."""
    digests = read_note(folder).digests
    return next((name for name, digest in digests.items() if is_changed(folder / name, digest)), None)
