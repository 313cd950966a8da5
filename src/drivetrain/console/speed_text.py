"""Images per second, as people read them."""

import math

__all__ = ["rounded_speed", "speed_text"]

_WHOLE_FROM = 10.0


def speed_text(images_per_second: float) -> str:
    """A whole number from 10 on, two significant digits below."""
    if not 0.0 < images_per_second < _WHOLE_FROM - 0.05:
        return f"{images_per_second:.0f}"
    return f"{images_per_second:.{1 - math.floor(math.log10(images_per_second))}f}"


def rounded_speed(images_per_second: float) -> float:
    """For files: a tenth is enough, unless that is most of it."""
    if images_per_second >= _WHOLE_FROM or not math.isfinite(images_per_second):
        return round(images_per_second, 1)
    return float(f"{images_per_second:.3g}")
