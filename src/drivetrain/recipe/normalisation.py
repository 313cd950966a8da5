"""The value of --normalisation: a word, or a mean and a standard deviation per channel."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

__all__ = ["ChannelValues", "NormalisationWord", "normalisation_value"]

NormalisationWord = Literal["auto", "unit", "standardise", "imagenet", "symmetric"]
_WORDS: tuple[str, ...] = get_args(NormalisationWord)
_RULE = f"one of {', '.join(_WORDS)}, or a mean and a deviation per channel, such as " + (
    "'{mean: [0.5, 0.5, 0.5], std: [0.25, 0.25, 0.25]}' for pixels from 0 to 1"
)


class ChannelValues(BaseModel):
    """Normalises pixels from 0 to 1: subtracts `mean` and divides by `std`, one number per channel.

    `of` is the library's model whose values these are. They are then averaged for images of another number
    of channels.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    mean: tuple[float, ...]
    std: tuple[float, ...]
    of: str | None = None


def normalisation_value(value: Any) -> Any:
    """A word in lower case, or the values of a mapping (or of YAML text that holds one)."""
    if isinstance(value, ChannelValues):
        return value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        value = _loaded(value)
    if isinstance(value, Mapping):
        return _channel_values(value)
    word = str(value).lower()
    if word not in _WORDS:
        raise ValueError(_RULE)
    return word


def _loaded(text: str) -> Any:
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        raise ValueError(_RULE) from None


def _channel_values(mapping: Mapping[Any, Any]) -> ChannelValues:
    lists = {
        key: [value] if isinstance(value, int | float) and key != "of" else value
        for key, value in mapping.items()
    }
    try:
        values = ChannelValues.model_validate(lists)
    except ValidationError:
        raise ValueError(_RULE) from None
    if len(values.mean) != len(values.std) or not values.mean:
        raise ValueError("a mapping with as many numbers in mean as in std")
    if min(values.std) <= 0:
        raise ValueError("a mapping whose numbers in std are more than 0")
    return values
