"""The result of a search: the best layouts as rows, what each trades, and how sure that is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.planner.costs import CostSource
from drivetrain.planner.search.exact import names_of
from drivetrain.planner.search.judge import Judge
from drivetrain.planner.search.layout import Evaluated, Layout
from drivetrain.planner.search.options import layout_fields, option_line
from drivetrain.planner.search.problem import Problem
from drivetrain.planner.search.search import order, search
from drivetrain.planner.search.subject import Subject

__all__ = ["Row", "SearchResult", "search_layouts"]

# How far apart a predicted and a measured update may be. Two layouts that are closer cannot be told apart.
# The worst differences that were found, both listed in docs/planner.md: for measured times in
# benchmarks/results/planner-cpu-2-cores.json (median 4 %), where replicas on shared cores are the worst; for
# described ones, the description `h200` against benchmarks/results/gpu_training-h200.json.
_MARGINS: Mapping[CostSource, float] = {"measured": 0.15, "described": 0.25}
_MARGIN_OF_SHARED_CORES = 0.35
_BEST = 10
# How often the limit is tightened where the estimate of the search was too low.
_TRIES = 4
_CLOSE = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One of the best layouts. `is_exact`: its memory was found with its stages built, not estimated."""

    found: Evaluated
    fields: Mapping[str, Any]
    trades: str
    is_exact: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResult:
    """The rows, the fastest first, and how sure their order is."""

    rows: tuple[Row, ...]
    source: CostSource
    families: int
    examined: int
    memory_limit: int | None
    shares_cores: bool = False
    assumes_times: bool = False
    notes: tuple[str, ...] = ()

    @property
    def margin(self) -> float:
        """By how much, relatively, predicted times may be wrong."""
        shares = self.shares_cores and any(row.found.layout.replicas > 1 for row in self.rows)
        return _MARGIN_OF_SHARED_CORES if shares else _MARGINS[self.source]

    @property
    def spread(self) -> float:
        """How much longer, relatively, the last row's update is than the first's."""
        return self.rows[-1].found.seconds / self.rows[0].found.seconds - 1

    @property
    def alike(self) -> int:
        """The number of rows that the times cannot tell apart from the best."""
        most = self.rows[0].found.seconds * (1 + self.margin)
        return sum(row.found.seconds <= most for row in self.rows)

    @property
    def how_sure(self) -> str:
        """The margin of the times beside the spread of the rows, in words."""
        percent = f"{100 * self.margin:.0f} %"
        if self.source == "measured":
            wrong = f"Times are measured and may be wrong by {percent}"
        elif self.assumes_times:
            wrong = f"Times follow from operations alone and may be wrong by more than {percent}"
        else:
            wrong = f"Times follow from the device's description and may be wrong by {percent}"
        if len(self.rows) == 1:
            return f"{wrong}; no other layout was found."
        told = (
            f"the first {self.alike} of them cannot be told apart"
            if self.alike > 1
            else "the first is faster than all others beyond that"
        )
        return f"{wrong}; the {len(self.rows)} best are within {100 * self.spread:.1f} %, so {told}."

    def as_json(self) -> dict[str, Any]:
        """The result as plain values."""
        return {
            "source": self.source,
            "margin": self.margin,
            "spread": self.spread,
            "alike": self.alike,
            "how_sure": self.how_sure,
            "families": self.families,
            "examined": self.examined,
            "memory_limit": self.memory_limit,
            **({"notes": list(self.notes)} if self.notes else {}),
            "best": [_row_json(row) for row in self.rows],
        }


def _row_json(row: Row) -> dict[str, Any]:
    layout = row.found.layout
    return {
        "seconds_per_update": row.found.seconds,
        "bubble": row.found.bubble,
        "devices": layout.devices,
        "stages": layout.stages if layout.devices_per_replica > 1 else 1,
        "replicas": layout.replicas,
        "schedule": layout.schedule if layout.devices_per_replica > 1 else None,
        "micro_batch_size": layout.micro,
        "gradient_accumulation_count": layout.accumulation,
        "peak_bytes": list(row.found.peak_bytes),
        "memory": "exact" if row.is_exact else "estimated",
        "trades": row.trades,
        "options": option_line(row.fields),
    }


def search_layouts(subject: Subject, problem: Problem, *, judge: Judge | None = None) -> SearchResult:
    """Searches; with a memory limit, every row is checked with its stages built, and always the first.

    `judge` rates the rows; without one their times are those of the search. Raises BadInputError if no layout
    stays within the limit.
    """
    rates = judge or Judge(subject=subject, overhead_bytes=problem.overhead_bytes)
    limit, smallest = problem.memory_limit, []
    tightened = problem
    for _ in range(_TRIES):
        found = search(tightened)
        rows, peaks = _checked(rates, problem, list(dict.fromkeys([*found.best, *found.whole])))
        rows = _timed(rates, rows)[:_BEST]
        if rows:
            return SearchResult(
                rows=_with_trades(rows),
                source=problem.source,
                families=found.families,
                examined=found.examined,
                memory_limit=None if limit is None else round(limit / problem.usable_share),
                shares_cores=problem.shares_cores,
                assumes_times=problem.assumes_times,
            )
        if not found.best or limit is None:
            break
        smallest += peaks
        # What was estimated to fit does not: the estimate is too low by this factor.
        factor = min((real / guess for real, guess in peaks), default=1 + _CLOSE)
        assert tightened.memory_limit is not None
        tightened = replace(
            tightened, memory_limit=int(min(limit / factor, tightened.memory_limit) * (1 - _CLOSE))
        )
    if limit is None:
        raise BadInputError(
            f"No layout on {problem.devices} devices keeps the global batch of {problem.global_batch} "
            "samples; use --replicas 1."
        )
    raise _none_fits(rates, problem, [real for real, _ in smallest], found.smallest)


def _checked(
    judge: Judge, problem: Problem, best: Sequence[Evaluated]
) -> tuple[list[Row], list[tuple[int, int]]]:
    """The rows that stay within the limit; of the others, their real and their estimated memory."""
    rows: list[Row] = []
    others: list[tuple[int, int]] = []
    for found in best:
        # Building the stages takes long.
        checks = problem.memory_limit is not None
        peaks = judge.peaks(found.layout) if checks else found.peak_bytes
        if peaks is None:
            continue
        real = replace(found, peak_bytes=peaks)
        if problem.memory_limit is not None and real.largest_bytes > problem.memory_limit:
            others.append((real.largest_bytes, found.largest_bytes))
            continue
        names = names_of(judge.subject, found.layout)
        fields = layout_fields(judge.subject.recipe, found.layout, names=names)
        rows.append(Row(found=real, fields=fields, trades="", is_exact=checks))
    return rows, others


def _timed(judge: Judge, rows: Sequence[Row]) -> list[Row]:
    """The rows with the times of their plans, the fastest first.

    Where each would have to be measured, that is done without stages and for the fastest with stages; the
    others with stages are scaled as this one was, as their layers were timed together.
    """
    if judge.times_all:
        return sorted(_all_judged(judge, rows), key=_place)
    whole = [row for row in rows if row.found.layout.devices_per_replica == 1]
    split = sorted((row for row in rows if row.found.layout.devices_per_replica > 1), key=_place)
    return sorted([*_all_judged(judge, whole), *_scaled_by_first(judge, split)], key=_place)


def _scaled_by_first(judge: Judge, rows: Sequence[Row]) -> list[Row]:
    for place, row in enumerate(rows):
        first = _judged(judge, row)
        if first is not None:
            factor = first.found.seconds / row.found.seconds
            others = rows[place + 1 :]
            scaled = [replace(each.found, seconds=each.found.seconds * factor) for each in others]
            return [
                first,
                *(replace(each, found=found) for each, found in zip(others, scaled, strict=True)),
            ]
    return []


def _all_judged(judge: Judge, rows: Sequence[Row]) -> list[Row]:
    judged = (_judged(judge, row) for row in rows)
    return [row for row in judged if row is not None]


def _place(row: Row) -> tuple[float, int, int]:
    return order(row.found)


def _judged(judge: Judge, row: Row) -> Row | None:
    peaks = row.found.peak_bytes if row.is_exact else judge.peaks(row.found.layout)
    if peaks is None:
        return None
    found = judge.timed(replace(row.found, peak_bytes=peaks))
    return replace(row, found=found, is_exact=True)


def _none_fits(
    judge: Judge, problem: Problem, sizes: Sequence[int], smallest: Evaluated | None
) -> BadInputError:
    known, limit = list(sizes), (problem.memory_limit or 0) / problem.usable_share
    if smallest is not None:
        peaks = judge.peaks(smallest.layout)
        known += [max(peaks)] if peaks is not None else []
    if not known:
        return BadInputError(f"--memory-limit {_size(limit)} is below every layout; use more --devices.")
    needed = min(known) / problem.usable_share
    return BadInputError(
        f"--memory-limit {_size(limit)} is below every layout; the smallest that was found needs "
        f"{_size(needed)} per device: use --memory-limit {_rounded_up(needed)}, or more --devices."
    )


def _size(size: float) -> str:
    return f"{size / 1e9:.4g}GB" if size >= 1e9 else f"{size / 1e6:.4g}MB"


def _rounded_up(size: float) -> str:
    return f"{ceil(size / 1e6)}MB"


def _with_trades(rows: Sequence[Row]) -> tuple[Row, ...]:
    return tuple(replace(row, trades=_trade(rows[0].found, row.found)) for row in rows)


def _trade(best: Evaluated, other: Evaluated) -> str:
    """What a layout costs and gains beside the best one."""
    if other is best:
        return "the fastest"
    slower = 100 * (other.seconds / best.seconds - 1)
    parts = [f"{slower:.1f} % slower"]
    memory = 100 * (other.largest_bytes / best.largest_bytes - 1)
    if abs(memory) >= 1:
        parts.append(f"{abs(memory):.0f} % {'more' if memory > 0 else 'less'} memory")
    parts += _differences(best.layout, other.layout)
    return ", ".join(parts)


def _differences(best: Layout, other: Layout) -> list[str]:
    fewer = best.devices - other.devices
    parts = []
    if fewer:
        parts.append(f"{abs(fewer)} {'fewer' if fewer > 0 else 'more'} devices")
    if any(other.recomputes) and not any(best.recomputes):
        parts.append("recomputes activations")
    if any(best.recomputes) and not any(other.recomputes):
        parts.append("recomputes nothing")
    if other.offloads != best.offloads:
        parts.append("optimiser state in host memory" if other.offloads else "optimiser state on the device")
    if other.group > best.group:
        parts.append(f"synchronises batch norm over {other.group} replicas")
    return parts
