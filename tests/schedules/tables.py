"""Mappings, edges and altered tables that the tests of schedules share."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from hypothesis import strategies as st

from drivetrain.schedules.actions import Action, Edge, Kind, Schedule, chain
from drivetrain.schedules.by_name import SCHEDULE_NAMES

names = st.sampled_from(SCHEDULE_NAMES)
micro_batch_counts = st.integers(1, 13)


@st.composite
def mappings(draw: st.DrawFn) -> tuple[int, ...]:
    """Any mapping of up to eight stages whose devices have no holes."""
    drawn = draw(st.lists(st.integers(0, 3), min_size=1, max_size=8))
    used = {device: place for place, device in enumerate(sorted(set(drawn)))}
    return tuple(used[device] for device in drawn)


@st.composite
def skips(draw: st.DrawFn, stages: int) -> tuple[Edge, ...]:
    """A chain with some more edges, several of them from one value, in any order."""
    pairs = [(first, last) for first in range(stages) for last in range(first + 1, stages)]
    drawn = draw(st.lists(st.sampled_from(pairs), unique=True, max_size=6)) if pairs else []
    edges = [*chain(stages), *(Edge(f"skip_{first}", first, last) for first, last in drawn)]
    return tuple(draw(st.permutations(edges)))


def action(text: str) -> Action:
    """`F0@2` is the forward of micro-batch 0 at stage 2."""
    micro_batch, stage = text[1:].split("@")
    return Action(Kind(text[0]), int(stage), int(micro_batch))


def row(schedule: Schedule, device: int) -> str:
    """A device's row, without the stages."""
    return " ".join(str(item).split("@")[0] for item in schedule.table[device])


def altered(schedule: Schedule, device: int, change: Callable[[list[Action]], object]) -> Schedule:
    """The schedule with one row changed in place by `change`."""
    rows: list[Sequence[Action]] = list(schedule.table)
    changed = list(rows[device])
    change(changed)
    rows[device] = changed
    return replace(schedule, table=tuple(tuple(actions) for actions in rows))
