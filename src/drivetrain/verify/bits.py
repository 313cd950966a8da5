"""Compares two measurements bit by bit: how many tensors are the same, and which one differs first."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.verify.measure import Measurement, Step

__all__ = ["Bits", "compare_bits"]

_SAME = "same"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bits:
    """How many of the compared losses and tensors have the same bits.

    `update` and `tensor` name the first that differs, in the order in which an update computes them.
    """

    same: int
    total: int
    update: int | None = None
    tensor: str | None = None

    @property
    def are_same(self) -> bool:
        return self.same == self.total

    @property
    def in_words(self) -> str:
        """The entry of the table."""
        return _SAME if self.are_same else f"update {self.update}: {self.tensor}"

    def to_json(self) -> dict[str, Any]:
        """Plain values for `--json`."""
        first = None if self.are_same else {"update": self.update, "tensor": self.tensor}
        return {"same": self.same, "compared": self.total, "first_difference": first}


def compare_bits(expected: Measurement, found: Measurement) -> Bits:
    """Compares all losses, and every tensor of the first and of the last update; -0.0 is not 0.0 here."""
    pairs = list(_pairs(expected, found))
    different = [(update, name) for update, name, one, other in pairs if not _have_same_bits(one, other)]
    # Losses come with every update, tensors with two; sorting is stable, so each update keeps its order.
    update, tensor = min(different, key=lambda where: where[0], default=(None, None))
    return Bits(same=len(pairs) - len(different), total=len(pairs), update=update, tensor=tensor)


_Pair = tuple[int, str, NDArray[Any], NDArray[Any]]


def _pairs(expected: Measurement, found: Measurement) -> Iterator[_Pair]:
    for update, (one, other) in enumerate(zip(expected.losses, found.losses, strict=True), start=1):
        yield update, "the loss", np.asarray(one), np.asarray(other)
    numbers = (1, len(expected.losses))
    for update, one, other in zip(numbers, expected.steps, found.steps, strict=False):
        yield from _pairs_of_step(update, one, other)


def _pairs_of_step(update: int, expected: Step, found: Step) -> Iterator[_Pair]:
    parts: tuple[tuple[str, Mapping[str, NDArray[Any]], Mapping[str, NDArray[Any]]], ...] = (
        ("the gradient of", expected.gradients, found.gradients),
        ("the running statistics", expected.statistics, found.statistics),
        ("the buffer", expected.counts, found.counts),
        ("the updated", expected.weights, found.weights),
        ("the optimizer state", expected.optimiser, found.optimiser),
    )
    for words, ones, others in parts:
        for name, value in ones.items():
            yield update, f"{words} {name}", value, others[name]


def _have_same_bits(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return (
        one.dtype == other.dtype and one.shape == other.shape and np.array_equal(_bytes(one), _bytes(other))
    )


def _bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
