"""The best cuts of a model into stages: dynamic programming over the bounds, exact for its objective.

The objective is the update of a pipeline with one stage per device: the first micro-batch passes through all
stages, and every further one takes as long as the slowest stage. A cut is kept as long as no other is as good
in both parts, so the result is exact for every number of micro-batches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

__all__ = ["FoundCut", "StageTables", "best_cuts", "objective"]

_Numbers = NDArray[np.float64]
# The slowest stage and the path so far, and the bounds at which stages begin.
_Part = tuple[float, float, tuple[int, ...]]
# Good cuts to begin with have slowest stages at most this much above the least possible.
_SLACKS = (1.0, 1.02, 1.1)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageTables:
    """For each stage a table of its slowest resource and one of its time on the path, over (first, end).

    Infinity in `slowest` means that the stage is not possible. `slowest` must not be above `path`.
    """

    slowest: Sequence[_Numbers]
    path: Sequence[_Numbers]

    @property
    def stages(self) -> int:
        return len(self.slowest)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundCut:
    """The bounds at which stages 1, 2, ... begin, and what the objective is made of."""

    firsts: tuple[int, ...]
    slowest_s: float
    path_s: float


def objective(cut: FoundCut, *, micro_batches: int) -> float:
    """The seconds of an update."""
    return cut.path_s + (micro_batches - 1) * cut.slowest_s


def best_cuts(tables: StageTables, *, micro_batches: int, at_most: float = float("inf")) -> list[FoundCut]:
    """The cuts that are best for some number of micro-batches, the best for this one first.

    Cuts above `at_most` are left out, so the list may be empty.
    """
    rest = _Rest(tables)
    if not np.isfinite(rest.slowest[0][0]):
        return []
    known = (_cheapest(tables, at_most_s=float(rest.slowest[0][0]) * slack) for slack in _SLACKS)
    # The bound may be rounded differently from the sum that it is compared with.
    most = min(at_most, *(objective(cut, micro_batches=micro_batches) for cut in known)) * (1 + 1e-9)
    fronts: dict[int, list[_Part]] = {0: [(0.0, 0.0, ())]}
    for stage in range(tables.stages):
        ends: dict[int, list[_Part]] = {}
        for first, front in fronts.items():
            for part in front:
                for end, slowest_s, path_s in rest.ends(
                    part, stage, first, micro_batches=micro_batches, most=most
                ):
                    ends.setdefault(end, []).append((slowest_s, path_s, (*part[2], first)))
        fronts = {end: _undominated(parts) for end, parts in ends.items()}
    found = [
        FoundCut(firsts=firsts[1:], slowest_s=slowest_s, path_s=path_s)
        for slowest_s, path_s, firsts in fronts.get(len(tables.slowest[0]) - 1, [])
    ]
    return sorted(found, key=lambda cut: (objective(cut, micro_batches=micro_batches), cut.firsts))


def _undominated(parts: list[_Part]) -> list[_Part]:
    kept: list[_Part] = []
    for part in sorted(parts):
        if not kept or part[1] < kept[-1][1]:
            kept.append(part)
    return kept


class _Rest:
    """What the stages after a bound cost at least."""

    def __init__(self, tables: StageTables) -> None:
        self._tables = tables
        self.slowest = _least_after(tables.slowest, together=np.maximum)
        self._path = _least_after(
            [np.where(np.isfinite(slowest), path, np.inf) for slowest, path in _pairs(tables)],
            together=np.add,
        )

    def ends(
        self, part: _Part, stage: int, first: int, *, micro_batches: int, most: float
    ) -> list[tuple[int, float, float]]:
        """Where a stage may end so that a whole cut may stay within `most`, and the two parts up to there."""
        after = stage + 1
        slowest = np.maximum(self._tables.slowest[stage][first, first + 1 :], part[0])
        path = part[1] + self._tables.path[stage][first, first + 1 :]
        slowest_of_all = np.maximum(slowest, self.slowest[after][first + 1 :])
        possible = np.isfinite(slowest_of_all)
        bound = path + self._path[after][first + 1 :]
        bound = bound + (micro_batches - 1) * np.where(possible, slowest_of_all, 0.0)
        within = np.flatnonzero(possible & (bound <= most))
        return list(
            zip((within + first + 1).tolist(), slowest[within].tolist(), path[within].tolist(), strict=True)
        )


def _pairs(tables: StageTables) -> Iterator[tuple[_Numbers, _Numbers]]:
    return zip(tables.slowest, tables.path, strict=True)


def _least_after(costs: Sequence[_Numbers], *, together: np.ufunc) -> list[_Numbers]:
    """For every stage and bound, the least cost of this stage and all later ones, if it begins there."""
    count = len(costs[0])
    least = np.full(count, np.inf)
    least[-1] = 0.0
    found = [least]
    # One array for all stages: a new one for each takes longer than filling it.
    scratch = np.empty((count, count))
    for table in reversed(costs):
        together(table, least[None, :], out=scratch)
        np.copyto(scratch, np.inf, where=_without_layers(count))
        least = scratch.min(axis=1)
        found.append(least)
    return found[::-1]


@cache
def _without_layers(count: int) -> NDArray[np.bool_]:
    """Where a stage would end before its first layer."""
    return np.tril(np.ones((count, count), dtype=bool))


def _cheapest(tables: StageTables, *, at_most_s: float) -> FoundCut:
    """The cut with the shortest path of those whose slowest stage takes at most this long; there is one."""
    paths = [np.where(slowest <= at_most_s, path, np.inf) for slowest, path in _pairs(tables)]
    least = _least_after(paths, together=np.add)
    firsts: list[int] = []
    first, slowest_s = 0, 0.0
    for stage in range(tables.stages):
        after = paths[stage][first] + least[stage + 1]
        after[: first + 1] = np.inf
        end = int(np.argmin(after))
        slowest_s = max(slowest_s, float(tables.slowest[stage][first, end]))
        firsts.append(end)
        first = end
    return FoundCut(firsts=tuple(firsts[:-1]), slowest_s=slowest_s, path_s=float(least[0][0]))
