"""Words inside messages: what a user wrote, made fit for a sentence, and the nearest known names."""

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


# What a user wrote, made fit to stand inside a sentence.


def shown(value: object) -> str:
    """A value as one short printable line."""
    written = _written(value)
    text = " ".join(written.split()) if written.strip() else repr(written)
    printable = text if text.isprintable() else repr(text)
    return printable if len(printable) <= _LONGEST_SHOWN else printable[: _LONGEST_SHOWN - 3] + "..."


def _written(value: object) -> str:
    """As YAML and the command line have it, which is not always how Python prints it."""
    if isinstance(value, Mapping | list | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return "none" if value is None else str(value)
