"""How the number of accumulated micro-batches suits a schedule: refused, or warned of with its cost."""

from drivetrain.core.errors import BadInputError
from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.simulator import simulate

__all__ = ["check_accumulation"]


def check_accumulation(
    schedule_name: str, *, stages: int, accumulation: int, samples_each: int | None = None
) -> str | None:
    """A warning with the idle share it costs, or None; BadInputError where the schedule cannot take it.

    `samples_each` is what one accumulated micro-batch adds to the global batch, where that was asked for.
    """
    if stages < 2:
        return None
    if schedule_name == "grouped":
        _check_whole_groups(stages, accumulation, samples_each)
    better = _better_accumulation(schedule_name, stages=stages, accumulation=accumulation)
    if better is None:
        return None
    return (
        f"--gradient-accumulation-count {accumulation} {_flaw(schedule_name, stages)}: with equal stages "
        f"the {schedule_name} schedule leaves devices idle for "
        f"{_idle(schedule_name, stages, accumulation)} of an update, and for "
        f"{_idle(schedule_name, stages, better)} with {better}."
    )


def _check_whole_groups(stages: int, accumulation: int, samples_each: int | None) -> None:
    group = 2 * stages
    if accumulation % group == 0:
        return
    below = max(accumulation // group * group, group)
    works = f"--gradient-accumulation-count {below} or {below + group} works"
    if samples_each is not None:
        works = f"--global-batch-size {below * samples_each} or {(below + group) * samples_each} works"
    raise BadInputError(
        f"an accumulation of {accumulation} micro-batches (--gradient-accumulation-count) does not suit the "
        f"grouped schedule of {stages} stages, which takes multiples of {group}; {works}."
    )


def _better_accumulation(schedule_name: str, *, stages: int, accumulation: int) -> int | None:
    """The next accumulation that suits, where this one does not."""
    if schedule_name == "1f1b" and accumulation % stages:
        return -(-accumulation // stages) * stages
    if schedule_name in ("gpipe", "zero-bubble") and accumulation < stages:
        return stages
    return None


def _flaw(schedule_name: str, stages: int) -> str:
    if schedule_name == "1f1b":
        return f"is not a multiple of the {stages} stages"
    return f"is less than the {stages} stages"


def _idle(schedule_name: str, stages: int, accumulation: int) -> str:
    """The idle share where every stage has a device and takes twice as long backward as forward."""
    schedule = build_schedule(schedule_name, micro_batches=accumulation, device_of=range(stages))
    bubble = simulate(schedule, forward_s=[1.0] * stages, backward_s=[2.0] * stages).bubble
    return f"{100 * bubble:.1f} %"
