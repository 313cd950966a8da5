"""What a sample is (an image, a row of a table or a signal), and how messages name it; needs no torch."""

from typing import Literal

__all__ = ["InputKind", "describe_input", "describe_size", "plural_of"]

InputKind = Literal["image", "table", "signal"]

_PLURALS: dict[InputKind, str] = {"image": "images", "table": "rows", "signal": "signals"}


def plural_of(kind: InputKind) -> str:
    """What messages call several samples: images, rows or signals."""
    return _PLURALS[kind]


def describe_input(kind: InputKind, *, channels: int, height: int, width: int) -> str:
    """Samples in words: `rows of 13 features`, `signals of 2 channels with 128 values each`."""
    return f"{plural_of(kind)} of {describe_size(kind, channels=channels, height=height, width=width)}"


def describe_size(kind: InputKind, *, channels: int, height: int, width: int) -> str:
    """The size of a sample: `13 features`, `2 channels with 64 values each`, `5x7 pixels with 3 channels`."""
    if kind == "table":
        return _counted(channels, "feature")
    if kind == "signal":
        each = " each" if channels > 1 else ""
        return f"{_counted(channels, 'channel')} with {_counted(width, 'value')}{each}"
    return f"{height}x{width} pixels with {_counted(channels, 'channel')}"


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"
