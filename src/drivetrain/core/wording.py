"""Nearest names, for messages about misspelt ones."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name a person most likely meant, or None when nothing is close."""
    by_folded = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """' Did you mean X?' ready to be appended to a sentence, or an empty string."""
    nearest = nearest_name(name, known)
    return f" Did you mean {prefix}{nearest}?" if nearest else ""
