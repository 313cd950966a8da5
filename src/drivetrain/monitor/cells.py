"""Values as short text for cells of a table; what is not known is an empty cell."""

from drivetrain.console.figures import speed_text
from drivetrain.console.progress_line import clock_time

__all__ = ["age", "amount", "celsius", "megahertz", "percent", "score", "speed", "used_of", "watts"]

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")
_DAY_S = 86400


def percent(value: float | None) -> str:
    """98%."""
    return "" if value is None else f"{value:.0f}%"


def amount(value: int | None) -> str:
    """Bytes as 1.5 GiB."""
    if value is None:
        return ""
    number, unit = float(value), 0
    while number >= 1024 and unit < len(_UNITS) - 1:
        number, unit = number / 1024, unit + 1
    return f"{number:.0f} {_UNITS[unit]}" if unit < 3 else f"{number:.1f} {_UNITS[unit]}"


def used_of(used: int | None, total: int | None) -> str:
    """Used and total bytes as 61.2/139.8 GiB."""
    if total is None:
        return amount(used)
    shown = "" if used is None else f"{used / 2**30:.1f}/"
    return f"{shown}{total / 2**30:.1f} GiB"


def megahertz(value: float | None, largest: float | None = None) -> str:
    """1830/1980 MHz."""
    if value is None:
        return ""
    return f"{value:.0f} MHz" if largest is None else f"{value:.0f}/{largest:.0f} MHz"


def celsius(value: float | None) -> str:
    """54 C."""
    return "" if value is None else f"{value:.0f} C"


def watts(value: float | None, limit: float | None = None) -> str:
    """512/700 W."""
    if value is None:
        return ""
    return f"{value:.0f} W" if limit is None else f"{value:.0f}/{limit:.0f} W"


def age(seconds: float | None) -> str:
    """4:05, 1:04:05 or, from a day on, 3d."""
    if seconds is None:
        return ""
    return clock_time(seconds) if seconds < _DAY_S else f"{int(seconds // _DAY_S)}d"


def speed(images_per_second: float | None) -> str:
    """Images per second."""
    return "" if images_per_second is None else speed_text(images_per_second)


def score(value: float | None) -> str:
    """A loss or metric with four digits."""
    return "" if value is None else f"{value:.4g}"
