"""What a user wrote, made fit to stand inside a sentence."""

_LONGEST_SHOWN = 60


def shown(value: object) -> str:
    """A value as one short printable line."""
    text = " ".join(str(value).split()) if str(value).strip() else repr(value)
    printable = text if text.isprintable() else repr(text)
    return printable if len(printable) <= _LONGEST_SHOWN else printable[: _LONGEST_SHOWN - 3] + "..."
