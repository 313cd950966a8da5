"""Builds the table of a schedule from its name."""

from collections.abc import Callable, Sequence

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean
from drivetrain.schedules.actions import Schedule
from drivetrain.schedules.fixed_order import gpipe_table, grouped_table, sequential_table
from drivetrain.schedules.legs import Table, join_legs, spread
from drivetrain.schedules.one_forward_one_backward import one_forward_one_backward_table
from drivetrain.schedules.zero_bubble import zero_bubble_table

__all__ = ["SCHEDULE_NAMES", "build_schedule"]

_GENERATORS: dict[str, Callable[..., Table]] = {
    "sequential": sequential_table,
    "grouped": grouped_table,
    "1f1b": one_forward_one_backward_table,
    "gpipe": gpipe_table,
    "zero-bubble": zero_bubble_table,
}

SCHEDULE_NAMES = tuple(_GENERATORS)


def build_schedule(name: str, *, micro_batches: int, device_of: Sequence[int]) -> Schedule:
    """Builds a schedule; `device_of` has the device of every stage and uses all devices from 0 on."""
    if name not in _GENERATORS:
        known = ", ".join(SCHEDULE_NAMES)
        hint = did_you_mean(name, SCHEDULE_NAMES)
        raise BadInputError(f"--pipeline-schedule {name} is not a known schedule; use one of {known}.{hint}")
    if micro_batches < 1:
        raise BadInputError(f"--gradient-accumulation-count {micro_batches} is too small; use 1 or more.")
    _check_mapping(device_of)
    legs = join_legs(device_of)
    table = spread(_GENERATORS[name](legs, micro_batches=micro_batches), legs)
    return Schedule(name=name, micro_batches=micro_batches, device_of=tuple(device_of), table=table)


def _check_mapping(device_of: Sequence[int]) -> None:
    devices = sorted(set(device_of))
    if not devices or devices != list(range(len(devices))):
        given = " ".join(map(str, device_of))
        one_each = " ".join(str(stage) for stage in range(max(len(device_of), 1)))
        raise BadInputError(
            f"--device-mapping {given} must use every device from 0 on without gaps; {one_each} works."
        )
