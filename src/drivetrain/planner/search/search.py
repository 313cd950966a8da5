"""The search: families in the order of their bounds, cuts by dynamic programming, updates by simulation."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, lru_cache
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from drivetrain.planner.costs import Link
from drivetrain.planner.search.cuts import FoundCut, StageTables, best_cuts
from drivetrain.planner.search.families import Family, families, least_seconds
from drivetrain.planner.search.layout import Evaluated, Layout, evaluate, table_of
from drivetrain.planner.search.problem import Problem
from drivetrain.planner.search.segments import Segments, find_segments
from drivetrain.schedules.checker import live_micro_batches

__all__ = ["Found", "Searcher", "order", "search"]

_Numbers = NDArray[np.float64]
_BEST = 10
# Cuts of a family whose updates are simulated, besides those of --split-by.
_CUTS_TRIED = 2
# The cuts of --split-by take long to find in models with more bounds; they are then compared with the best.
_FEW_BOUNDS = 100
# Makes the objective of a cut that of its largest stage alone.
_ONLY_SLOWEST = 10**6
# Families examined for the smallest plan, where none fits.
_SMALLEST_TRIED = 40
# Tables of a network with 500 layers take 5 MB.
_TABLES_KEPT = 64
# Rounds of moving single bounds of the best layouts, and bounds tried on each side.
_ROUNDS, _REACH = 3, 1
# Stages x micro-batches; longer updates keep the cuts of dynamic programming.
_MOST_PASSES = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The best layouts, the fastest first; where none fits, the one that needs the least memory.

    `whole` are the best without stages, and on one device: whoever times these more exactly than as a sum of
    layers may find them faster.
    """

    best: tuple[Evaluated, ...]
    whole: tuple[Evaluated, ...]
    smallest: Evaluated | None
    families: int
    examined: int


def search(problem: Problem, *, keep: int = _BEST, prunes: bool = True) -> Found:
    """The `keep` best layouts, one per family; `prunes=False` examines every family."""
    searcher = Searcher(problem)
    ranked = sorted(
        (
            (least_seconds(problem, family, searcher.segments(family)), number, family)
            for number, family in enumerate(families(problem))
        ),
        key=lambda row: row[:2],
    )
    best: list[Evaluated] = []
    smallest: Evaluated | None = None
    examined = 0
    for least_s, _, family in ranked:
        if prunes and len(best) == keep and least_s > best[-1].seconds:
            break
        if prunes and not searcher.may_fit(family):
            continue
        examined += 1
        found = searcher.family(family)
        if found is None:
            continue
        if searcher.fits(found):
            best = sorted([*best, found], key=order)[:keep]
    if not best:
        # The smallest plan of all is worth telling; bounds say where it is likely to be.
        every = (family for _, _, family in ranked)
        for family in sorted(every, key=searcher.smallness)[:_SMALLEST_TRIED]:
            found = searcher.smallest(family)
            smallest = min((each for each in (smallest, found) if each), key=lambda each: each.largest_bytes)
    moved = sorted((searcher.moved(found) for found in best), key=order)
    whole = tuple(_whole(searcher, [family for _, _, family in ranked]))
    return Found(best=tuple(moved), whole=whole, smallest=smallest, families=len(ranked), examined=examined)


def _whole(searcher: "Searcher", every: Sequence[Family]) -> Iterator[Evaluated]:
    plain = [family for family in every if len(family.device_of) == 1 and searcher.may_fit(family)]
    found = [each for each in map(searcher.family, plain) if each is not None and searcher.fits(each)]
    best = min(found, key=order, default=None)
    alone = min((each for each in found if each.layout.replicas == 1), key=order, default=None)
    for each in (best, alone if alone is not best else None):
        if each is not None:
            yield searcher.moved(each)


def order(found: Evaluated) -> tuple[float, int, int]:
    """The fastest first; of equals, the one with fewer devices and stages."""
    return found.seconds, found.layout.devices, found.layout.stages


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """What the costs of stages depend on, besides the problem."""

    micro: int
    link: Link
    slowdown: float
    norm_s: float


class Searcher:
    """Finds the best cut of each family of a problem."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self._tables = cache(self._find_segments)
        self._limited = lru_cache(maxsize=_TABLES_KEPT)(self._limited_stage)
        self._found: dict[tuple[object, ...], tuple[list[FoundCut], list[NDArray[np.bool_]]]] = {}

    def segments(self, family: Family | Layout) -> Segments:
        """The costs of stages at the micro-batch size of a family."""
        return self._tables(self._setting(family))

    def _setting(self, family: Family | Layout) -> "_Setting":
        problem, per_replica = self.problem, family.devices_per_replica
        across = problem.links.slowest(family.group * per_replica)
        return _Setting(
            micro=family.micro,
            link=problem.stage_link(per_replica),
            slowdown=problem.slowdown(family.replicas * per_replica),
            norm_s=2 * across.latency_s if family.group > 1 else 0.0,
        )

    def _find_segments(self, setting: "_Setting") -> Segments:
        return find_segments(
            self.problem,
            micro=setting.micro,
            link=setting.link,
            slowdown=setting.slowdown,
            norm_s=setting.norm_s,
        )

    def fits(self, found: Evaluated) -> bool:
        """Whether every device stays within the memory limit."""
        limit = self.problem.memory_limit
        return limit is None or found.largest_bytes <= limit

    def may_fit(self, family: Family) -> bool:
        """Whether a family may stay within the memory limit."""
        limit = self.problem.memory_limit
        return limit is None or self.least_bytes(family) <= limit

    def least_bytes(self, family: Family) -> float:
        """A bound below the memory of the fullest device, for every cut."""
        segments, first = self.segments(family), self.problem.first_device_bytes
        overhead = self.problem.overhead_bytes
        lasting = float(self._lasting(segments, offloads=family.offloads)[0, -1]) + first
        if family.devices_per_replica == 1:
            return overhead + lasting
        each = self._bytes(segments, 1, offloads=family.offloads, recomputes=True)
        # A device holds at least one of the shortest possible stages, and all of them are somewhere.
        shortest = np.diagonal(each, offset=1)
        on_first = float(shortest.min()) + first
        return overhead + max(lasting / family.devices_per_replica, float(shortest.max()), on_first)

    def smallness(self, family: Family) -> tuple[float, ...]:
        """Sorts families by how little memory their devices are likely to need."""
        live = max(_live(family))
        return not family.offloads, live * family.micro, -family.devices_per_replica, self.least_bytes(family)

    def family(self, family: Family) -> Evaluated | None:
        """The best layout of a family; if none fits the limit, the one with the least memory."""
        found = [self._saving(self._evaluate(layout)) for layout in self.layouts(family)]
        fitting = [each for each in found if self.fits(each)]
        if fitting:
            return min(fitting, key=order)
        return min(found, key=lambda each: each.largest_bytes, default=None)

    def _evaluate(self, layout: Layout, *, memory: bool | None = None) -> Evaluated:
        wants = self.problem.memory_limit is not None if memory is None else memory
        return evaluate(self.problem, self.segments(layout), layout, memory=wants)

    def layouts(self, family: Family) -> Iterator[Layout]:
        """The cuts that dynamic programming finds; of small models also those of --split-by."""
        cuts, choices = self._cuts(family)
        firsts = [cut.firsts for cut in cuts]
        bounds = self.segments(family).bounds
        if len(bounds) <= _FEW_BOUNDS:
            firsts += self._seeds(family)
        for each in dict.fromkeys(firsts):
            ends = [0, *each, len(bounds) - 1]
            recomputes = [bool(choices[stage][place]) for stage, place in enumerate(pairwise(ends))]
            yield _layout(family, tuple(bounds[place] for place in each), tuple(recomputes))
        if self.problem.memory_limit is not None:
            yield from self._in_blocks(family)

    def _in_blocks(self, family: Family) -> Iterator[Layout]:
        """One device whose model is recomputed in blocks."""
        if len(family.device_of) == 1 and self.problem.blocks:
            blocks = (0,) * (len(self.problem.blocks) + 1)
            recomputes = tuple(True for _ in blocks)
            yield _layout(replace(family, device_of=blocks), self.problem.blocks, recomputes)

    def _cuts(self, family: Family) -> tuple[list[FoundCut], list[NDArray[np.bool_]]]:
        """Cuts, and for each stage whether it recomputes; many families have the same."""
        key: tuple[object, ...] = (len(family.device_of), self._setting(family), family.accumulation)
        if self.problem.memory_limit is not None:
            is_first = tuple(home == 0 for home in family.device_of)
            key = (*key, family.offloads, _live(family), is_first)
        if key not in self._found:
            tables, choices = self._stage_tables(family)
            cuts = best_cuts(tables, micro_batches=family.accumulation)[:_CUTS_TRIED]
            self._found[key] = (cuts, choices)
        return self._found[key]

    def _seeds(self, family: Family | Layout) -> list[tuple[int, ...]]:
        """The cuts of --split-by, as indices of bounds."""
        if max(family.device_of) == 0:
            return []
        index = {bound: place for place, bound in enumerate(self.segments(family).bounds)}
        return [tuple(index[first] for first in seed) for seed in self.problem.seeds(len(family.device_of))]

    def _stage_tables(self, family: Family) -> tuple[StageTables, list[NDArray[np.bool_]]]:
        """What each stage would cost, and whether it must recompute to stay within the limit."""
        segments, stages = self.segments(family), len(family.device_of)
        compute, transfer = segments.compute_s, segments.transfer_s
        if self.problem.memory_limit is None:
            never = np.zeros(compute.shape, dtype=bool)
            tables = StageTables(
                slowest=[np.maximum(compute, transfer)] * stages, path=[compute + transfer] * stages
            )
            return tables, [never] * stages
        slowest, path, choices = [], [], []
        for home, live in zip(family.device_of, _live(family), strict=True):
            more = self.problem.extra_bytes(home)
            limited = self._limited(self._setting(family), live, more, family.offloads)
            slowest.append(limited[0])
            path.append(limited[1])
            choices.append(limited[2])
        return StageTables(slowest=slowest, path=path), choices

    def _limited_stage(
        self, setting: "_Setting", live: int, more: int, offloads: bool
    ) -> tuple[_Numbers, _Numbers, NDArray[np.bool_]]:
        """Slowest resource and path of a stage within the limit, and where it must recompute for that."""
        segments, limit = self._tables(setting), self.problem.memory_limit
        assert limit is not None
        plain, recomputed = (
            self._bytes(segments, live, offloads=offloads, recomputes=again) + more for again in (False, True)
        )
        again = plain > limit
        needed = segments.compute_s + np.where(again, segments.forward_s, 0.0)
        slowest = np.where(recomputed <= limit, np.maximum(needed, segments.transfer_s), np.inf)
        return slowest, needed + segments.transfer_s, again

    def smallest(self, family: Family) -> Evaluated | None:
        """The layout of a family that needs the least memory, every stage recomputed."""
        sizes = [
            self._bytes(self.segments(family), live, offloads=family.offloads, recomputes=True)
            + self.problem.extra_bytes(home)
            for home, live in zip(family.device_of, _live(family), strict=True)
        ]
        bounds = self.segments(family).bounds
        found = [
            self._evaluate(
                _layout(family, tuple(bounds[place] for place in cut.firsts), (len(sizes) > 1,) * len(sizes))
            )
            for cut in best_cuts(StageTables(slowest=sizes, path=sizes), micro_batches=_ONLY_SLOWEST)[:1]
        ]
        if len(family.device_of) == 1:
            found += [self._evaluate(layout) for layout in self._in_blocks(family)]
        return min(found, key=lambda each: each.largest_bytes, default=None)

    @staticmethod
    def _lasting(segments: Segments, *, offloads: bool) -> _Numbers:
        """Memory that a stage holds all the time."""
        states = 0.0 if offloads else segments.state_bytes
        return np.asarray(segments.weight_bytes + segments.gradient_bytes + states)

    def _bytes(self, segments: Segments, live: int, *, offloads: bool, recomputes: bool) -> _Numbers:
        """Memory of a stage alone on its device."""
        passes = 1 if recomputes else live
        held = live * segments.received_bytes + passes * segments.saved_bytes + segments.working_bytes
        return self._lasting(segments, offloads=offloads) + held

    def _saving(self, found: Evaluated) -> Evaluated:
        """The layout with recomputation of one stage after another of each device that exceeds the limit."""
        # Without stages, recomputation needs blocks, which `layouts` tries.
        while found.layout.stages > 1 and not self.fits(found):
            layout, limit = found.layout, self.problem.memory_limit
            assert limit is not None
            free: dict[int, int] = {}
            for stage, home in enumerate(layout.device_of):
                if found.peak_bytes[home] > limit and not layout.recomputes[stage]:
                    free.setdefault(home, stage)
            if not free:
                break
            recomputes = tuple(each or stage in free.values() for stage, each in enumerate(layout.recomputes))
            found = self._evaluate(replace(layout, recomputes=recomputes))
        return found

    def moved(self, found: Evaluated) -> Evaluated:
        """The layout or one with a cut of --split-by; then single bounds move as long as that helps.

        Adds the memory.
        """
        segments = self.segments(found.layout)
        for seed in self._seeds(found.layout):
            firsts = tuple(segments.bounds[place] for place in seed)
            tried = self._evaluate(replace(found.layout, firsts=firsts))
            found = min((each for each in (found, tried) if self.fits(each)), key=order, default=found)
        rounds = _ROUNDS if found.layout.stages * found.layout.accumulation <= _MOST_PASSES else 0
        for _ in range(rounds):
            near = [
                self._evaluate(replace(found.layout, firsts=firsts))
                for firsts in _neighbours(found.layout.firsts, segments.bounds)
            ]
            nearest = min((each for each in near if self.fits(each)), key=order, default=found)
            if nearest.seconds >= found.seconds:
                break
            found = nearest
        return self._evaluate(found.layout, memory=True)


def _live(family: Family) -> tuple[int, ...]:
    return live_micro_batches(table_of(family.schedule, family.accumulation, family.device_of))


def _layout(family: Family, firsts: tuple[int, ...], recomputes: tuple[bool, ...]) -> Layout:
    return Layout(
        firsts=firsts,
        device_of=family.device_of,
        schedule=family.schedule,
        replicas=family.replicas,
        micro=family.micro,
        accumulation=family.accumulation,
        group=family.group,
        recomputes=recomputes,
        offloads=family.offloads,
    )


def _neighbours(firsts: Sequence[int], bounds: Sequence[int]) -> Iterator[tuple[int, ...]]:
    index = {bound: place for place, bound in enumerate(bounds)}
    for stage, first in enumerate(firsts):
        for step in (*range(-_REACH, 0), *range(1, _REACH + 1)):
            place = index[first] + step
            if not 0 < place < len(bounds) - 1:
                continue
            moved = (*firsts[:stage], bounds[place], *firsts[stage + 1 :])
            if all(one < other for one, other in pairwise(moved)):
                yield moved
