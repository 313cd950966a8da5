"""The names of runs on a page."""

import hashlib
import re
from pathlib import Path

from drivetrain.store.crossval_directory import CrossvalDirectory

__all__ = ["id_of", "name_of"]


def name_of(path: Path) -> str:
    """The name of a run: that of its folder, for a fold with that of its cross-validation."""
    place = path.absolute() if path.name else path.resolve()
    is_fold = CrossvalDirectory(place.parent).holds_job
    return f"{place.parent.name}/{place.name}" if is_fold else place.name


def id_of(path: Path) -> str:
    """A name that no other run has, of letters, digits, dashes and underscores."""
    place = path.resolve()
    digest = hashlib.sha256(str(place).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    return f"{re.sub(r'[^A-Za-z0-9_-]+', '-', place.name) or 'run'}-{digest}"
