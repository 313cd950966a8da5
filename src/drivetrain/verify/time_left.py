"""Estimates how long the rest of a verification takes, from the measurements made so far."""

import os
from collections.abc import Iterable
from dataclasses import InitVar, dataclass, field

from drivetrain.verify.cuts import Layout
from drivetrain.verify.measure import DtypeName

__all__ = ["TimeLeft"]

# Until a measurement in float64 was timed: how many times as long as float32 it takes. Measured for resnet50
# at 224 on two cores of an AMD EPYC: 2.4.
_FLOAT64 = 2.5
# Recomputation runs the forward pass, a third of the work, once more.
_RECOMPUTATION = 4 / 3


@dataclass(slots=True)
class TimeLeft:
    """The measurements that are planned, and the seconds per unit of work of those that were made.

    Measurements of one dtype, in one process or on ranks, share a pace. A kind that was never timed is judged
    by the others.
    """

    planned: InitVar[Iterable[tuple[Layout, DtypeName]]]
    _left: set[tuple[Layout, DtypeName]] = field(init=False)
    _seconds: dict[tuple[DtypeName, bool], float] = field(default_factory=dict)
    _units: dict[tuple[DtypeName, bool], float] = field(default_factory=dict)

    def __post_init__(self, planned: Iterable[tuple[Layout, DtypeName]]) -> None:
        self._left = set(planned)

    def add(self, layout: Layout, dtype: DtypeName, *, seconds: float, was_planned: bool = True) -> None:
        """Records the time of a measurement; a planned one is done now."""
        kind = (dtype, layout.ranks > 1)
        self._seconds[kind] = self._seconds.get(kind, 0.0) + seconds
        self._units[kind] = self._units.get(kind, 0.0) + _work(layout)
        if was_planned:
            self._left.discard((layout, dtype))

    @property
    def seconds(self) -> float:
        """The expected seconds of the planned measurements that are left, once one has been timed."""
        return sum(self._expected_s(layout, dtype) for layout, dtype in self._left)

    def _expected_s(self, layout: Layout, dtype: DtypeName) -> float:
        kind = (dtype, layout.ranks > 1)
        if kind in self._seconds:
            return self._seconds[kind] / self._units[kind] * _work(layout)
        seconds = sum(total / _slowness(known) for known, total in self._seconds.items())
        return seconds / sum(self._units.values()) * _slowness(kind) * _work(layout)


def _slowness(kind: tuple[DtypeName, bool]) -> float:
    return _FLOAT64 if kind[0] == "float64" else 1.0


def _work(layout: Layout) -> float:
    """The work of a layout relative to one process with the same batch: its ranks share the cores."""
    cores = os.cpu_count() or 1
    at_once = min(layout.ranks, cores)
    return (_RECOMPUTATION if layout.recomputation is not False else 1.0) / at_once
