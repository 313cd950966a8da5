"""What a user wrote, made fit to stand inside a sentence."""

import json
from collections.abc import Mapping

_LONGEST_SHOWN = 60


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
