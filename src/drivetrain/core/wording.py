"""Parts of messages: user values as short printable text, and suggestions of the nearest name."""

import json
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

_LONGEST_SHOWN = 60


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The known name a person most likely meant, or None when nothing is close."""
    by_folded = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name.lower(), by_folded, n=1, cutoff=0.6)
    return by_folded[matches[0]] if matches else None


def did_you_mean(name: str, known: Iterable[str], *, prefix: str = "") -> str:
    """' Did you mean X?' ready to be appended to a sentence, or an empty string."""
    nearest = nearest_name(name, known)
    return f" Did you mean {prefix}{nearest}?" if nearest else ""


def nearest_names(name: str, known: Iterable[str], *, prefix: str = "", count: int = 3) -> str:
    """' Did you mean X, Y or Z?' with the nearest of many names, or an empty string."""
    by_folded = {candidate.lower(): candidate for candidate in known}
    matches = get_close_matches(name.lower(), by_folded, n=count, cutoff=0.6)
    *others, last = [f"{prefix}{by_folded[match]}" for match in matches] or [""]
    return f" Did you mean {', '.join(others)}{' or ' if others else ''}{last}?" if last else ""


def shown(value: object) -> str:
    """A value as one short printable line, for use inside a sentence."""
    written = _written(value)
    text = " ".join(written.split()) if written.strip() else repr(written)
    printable = text if text.isprintable() else repr(text)
    return printable if len(printable) <= _LONGEST_SHOWN else printable[: _LONGEST_SHOWN - 3] + "..."


def _written(value: object) -> str:
    """The value as YAML and the command line write it, which may differ from Python's notation."""
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "none" if value is None else str(value)


def words(text: str) -> frozenset[str]:
    """Splits a text into a set of words, to write tables of names compactly."""
    return frozenset(text.split())


def count_of(count: int, singular: str, *, plural: str | None = None) -> str:
    """A number with its noun, as in "1 image" and "2 images"."""
    return f"{count} {singular if count == 1 else plural or singular + 's'}"
