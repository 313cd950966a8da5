"""Sizes of memory as people write them: 80 GB, 512 MiB, 8e9."""

import math
import re

from drivetrain.core.errors import BadInputError

__all__ = ["parse_bytes"]

_UNITS = {"": 1, "b": 1}
_UNITS |= {f"{prefix}b": 1000**power for power, prefix in enumerate("kmgt", start=1)}
_UNITS |= {f"{prefix}ib": 1024**power for power, prefix in enumerate("kmgt", start=1)}
_UNITS |= {prefix: 1000**power for power, prefix in enumerate("kmgt", start=1)}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(e[0-9]+)?\s*([a-z]*)\s*")


def parse_bytes(text: object, *, what: str) -> int:
    """The bytes that a text or a number says; `what` names it in the error, as in `--memory-limit 8 GB`."""
    match = _SIZE.fullmatch(str(text).lower())
    size = 0.0
    if match is not None and match[3] in _UNITS and not isinstance(text, bool):
        size = float(match[1] + (match[2] or "")) * _UNITS[match[3]]
    if not math.isfinite(size) or size < 1:
        raise BadInputError(f"{what} {text} is not a size of memory; {what} 8GB works.")
    return int(size)
