"""The result of a search: the best layouts as rows, what each trades, and how sure that is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.planner.costs import CostSource
from drivetrain.planner.search.exact import exact_peaks, names_of
from drivetrain.planner.search.layout import Evaluated, Layout
from drivetrain.planner.search.options import layout_fields, option_line
from drivetrain.planner.search.problem import Problem
from drivetrain.planner.search.search import search
from drivetrain.planner.search.subject import Subject

__all__ = ["Row", "SearchResult", "search_layouts"]

# How far apart a predicted and a measured update may be. Two layouts that are closer cannot be told apart.
_MARGINS: Mapping[CostSource, float] = {"measured": 0.1, "described": 0.3}
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

    @property
    def margin(self) -> float:
        """By how much, relatively, predicted times may be wrong."""
        return _MARGINS[self.source]

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
        times = "measured" if self.source == "measured" else "estimated from operations, not measured"
        wrong = f"Times are {times} and may be wrong by {100 * self.margin:.0f} %"
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


def search_layouts(subject: Subject, problem: Problem) -> SearchResult:
    """Searches; with a memory limit, every row is checked with its stages built.

    Raises BadInputError if no layout stays within the limit.
    """
    limit, smallest = problem.memory_limit, []
    tightened = problem
    for _ in range(_TRIES):
        found = search(tightened)
        rows, peaks = _checked(subject, problem, found.best)
        if rows:
            return SearchResult(
                rows=_with_trades(rows),
                source=problem.source,
                families=found.families,
                examined=found.examined,
                memory_limit=limit,
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
    raise _none_fits(subject, problem, [real for real, _ in smallest], found.smallest)


def _checked(
    subject: Subject, problem: Problem, best: Sequence[Evaluated]
) -> tuple[list[Row], list[tuple[int, int]]]:
    """The rows that stay within the limit; of the others, their real and their estimated memory."""
    rows: list[Row] = []
    others: list[tuple[int, int]] = []
    for found in best:
        # Without a limit only the first row is checked: building the stages takes long.
        checks = problem.memory_limit is not None or not rows
        peaks = exact_peaks(subject, found.layout) if checks else found.peak_bytes
        if peaks is None:
            continue
        real = replace(found, peak_bytes=_with_overhead(problem, peaks) if checks else peaks)
        if problem.memory_limit is not None and real.largest_bytes > problem.memory_limit:
            others.append((real.largest_bytes, found.largest_bytes))
            continue
        fields = layout_fields(subject.recipe, found.layout, names=names_of(subject, found.layout))
        rows.append(Row(found=real, fields=fields, trades="", is_exact=checks))
    return rows, others


def _with_overhead(problem: Problem, peaks: Sequence[int]) -> tuple[int, ...]:
    return tuple(peak + problem.overhead_bytes for peak in peaks)


def _none_fits(
    subject: Subject, problem: Problem, sizes: Sequence[int], smallest: Evaluated | None
) -> BadInputError:
    known, limit = list(sizes), problem.memory_limit or 0
    if smallest is not None:
        peaks = exact_peaks(subject, smallest.layout)
        known += [max(_with_overhead(problem, peaks))] if peaks is not None else []
    if not known:
        return BadInputError(f"--memory-limit {_size(limit)} is below every layout; use more --devices.")
    return BadInputError(
        f"--memory-limit {_size(limit)} is below every layout; the smallest that was found needs "
        f"{_size(min(known))} per device: use --memory-limit {_rounded_up(min(known))}, or more --devices."
    )


def _size(size: int) -> str:
    return f"{size / 1e9:.4g}GB" if size >= 1e9 else f"{size / 1e6:.4g}MB"


def _rounded_up(size: int) -> str:
    return f"{-(-size // 10**6)}MB"


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
