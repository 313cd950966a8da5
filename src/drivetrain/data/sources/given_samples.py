"""Reads samples that a user gives as arrays, tensors or data frames: finds out what they are, checks them."""

from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np
import torch
from numpy.typing import NDArray

from drivetrain.catalogue.input_kinds import InputKind
from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import shown
from drivetrain.data.source import Source
from drivetrain.data.sources.given_pixels import read_images
from drivetrain.recipe.params import InputChoice

__all__ = ["is_array", "is_frame", "read_samples", "scale_warning", "turned_warning"]

_TABLE, _SIGNAL = 2, 3
# Above this ratio of scales, the smaller columns of a table hardly reach a freshly initialised layer.
_LARGEST_USUAL_RATIO = 100.0
# Enough to know the scale of each column, and few enough for a data set that computes its samples.
_ROWS_LOOKED_AT = 256


def is_frame(value: object) -> bool:
    """Whether a value is a data frame, of pandas or in its manner."""
    return hasattr(value, "to_numpy") and hasattr(value, "columns")


def is_array(value: object) -> TypeGuard[Any]:
    """Whether a value is a numpy array, a tensor or a data frame: samples or labels, not a data set."""
    return isinstance(value, np.ndarray | torch.Tensor) or is_frame(value)


def read_samples(values: Any, *, choice: InputChoice) -> tuple[NDArray[Any], InputKind]:
    """Samples as (samples, height, width, channels) in uint8 or float32, and what they are.

    Two dimensions are a table, three or four are images; `choice` (`--input-kind`) can say something else.
    """
    names = list(map(str, values.columns)) if is_frame(values) else []
    values = values.to_numpy() if is_frame(values) else values
    kind = _kind_of(tuple(values.shape), choice=choice)
    if kind == "image":
        return read_images(values), kind
    is_tensor = isinstance(values, torch.Tensor)
    numbers = _numbers(_as_array(values), names=names, kind=kind)
    if kind == "table":
        return numbers[:, np.newaxis, np.newaxis, :], kind
    return _lines(numbers, is_tensor=is_tensor), kind


def _kind_of(shape: tuple[int, ...], *, choice: InputChoice) -> InputKind:
    if len(shape) < _TABLE:
        raise BadInputError(
            f"The samples have the shape {shape}, with no dimension for what a sample contains; give "
            "(samples, features): values[:, None] for a single feature, values[None] for a single sample."
        )
    if choice == "table" and len(shape) != _TABLE:
        raise BadInputError(
            f"--input-kind table needs an array (samples, features), but its shape is {shape}; "
            "values.reshape(len(values), -1) makes rows of it."
        )
    if choice == "signal" and len(shape) not in (_TABLE, _SIGNAL):
        raise BadInputError(
            f"--input-kind signal needs an array (samples, length, channels), a tensor (samples, channels, "
            f"length), or (samples, length) for one channel, but the shape is {shape}."
        )
    if choice != "auto":
        return choice
    return "table" if len(shape) == _TABLE else "image"


def _as_array(values: Any) -> NDArray[Any]:
    if isinstance(values, torch.Tensor):
        # numpy has no bfloat16.
        values = (values.float() if values.is_floating_point() else values).detach().cpu().numpy()
    array: NDArray[Any] = np.asarray(values)
    return array


def _numbers(values: NDArray[Any], *, names: Sequence[str], kind: InputKind) -> NDArray[np.float32]:
    """The values in float32, unscaled; whole numbers and truth values become what they say."""
    if 0 in values.shape[1:]:
        raise BadInputError(f"The {kind} has the shape {values.shape}, without any values; give some.")
    if values.dtype == object:
        _require_numbers(values, names=names, kind=kind)
    elif values.dtype.kind not in "fiub":
        words = "text" if values.dtype.kind in "US" else str(values.dtype)
        raise BadInputError(f"The {kind} contains {words}, but it must contain numbers, such as float32.")
    with np.errstate(over="ignore"):  # What float32 cannot hold becomes infinite, and is refused as that.
        return np.ascontiguousarray(values, dtype=np.float32)


def _require_numbers(values: NDArray[Any], *, names: Sequence[str], kind: InputKind) -> None:
    """Names the first value of an object array that is not a number."""
    for place in np.ndindex(values.shape):
        value = values[place]
        if not isinstance(value, int | float | np.number | np.bool_) or isinstance(value, complex):
            column = place[-1]
            name = f" ({names[column]})" if names else ""
            raise BadInputError(
                f"Row {place[0]} of the {kind} contains {shown(str(value))} in column {column}{name}, which "
                "is not a number; give each column as numbers, or leave it out."
            )


def _lines(numbers: NDArray[np.float32], *, is_tensor: bool) -> NDArray[np.float32]:
    """Signals as one line of pixels: (samples, 1, length, channels)."""
    if numbers.ndim == _TABLE:
        numbers = numbers[..., np.newaxis]
    elif is_tensor:
        numbers = numbers.transpose(0, 2, 1)
    return np.ascontiguousarray(numbers[:, np.newaxis])


def scale_warning(table: Source) -> str | None:
    """Says that columns of a table differ in scale by orders of magnitude; some rows tell."""
    rows, _ = table.fetch(np.arange(min(_ROWS_LOOKED_AT, len(table)), dtype=np.int64))
    sizes = np.sqrt(np.square(rows.reshape(len(rows), -1), dtype=np.float64).mean(axis=0))
    used = np.flatnonzero(sizes)
    if len(used) < 2:
        return None
    small, large = (int(used[place]) for place in (sizes[used].argmin(), sizes[used].argmax()))
    if sizes[large] <= _LARGEST_USUAL_RATIO * sizes[small]:
        return None
    return (
        f"The columns of the table differ in scale: column {large} has values of about {sizes[large]:.3g}, "
        f"column {small} of about {sizes[small]:.3g}; models learn better from columns of one scale: "
        "subtract each column's mean and divide by its standard deviation, or begin with a BatchNorm1d."
    )


def turned_warning(signals: NDArray[np.float32]) -> str | None:
    """Says that signals look transposed."""
    length, channels = signals.shape[2:]
    if length >= channels:
        return None
    return (
        f"The signals have more channels ({channels}) than values ({length}); numpy signals are (samples, "
        "length, channels) and tensors (samples, channels, length), so transpose them if that is wrong."
    )
