"""Values as JSON inside a script element of a page, which no text in them can end."""

import json
import math
from collections.abc import Mapping
from typing import Any

__all__ = ["embedded_json"]

# What could end the element or begin a comment; the last two end a line in old JavaScript.
_ESCAPES = {ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&\u2028\u2029"}


def embedded_json(value: Any) -> str:
    """The value as JSON; a number that is not finite becomes null."""
    try:
        text = _dumped(value)
    except ValueError:
        text = _dumped(_finite(value))
    return text.translate(_ESCAPES)


def _dumped(value: Any) -> str:
    # A lone surrogate, as in a file name that is not UTF-8, stays an escape and can be written.
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {name: _finite(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(inner) for inner in value]
    return value
