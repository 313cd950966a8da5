"""Checks that the gradient accumulation suits a schedule; warns with the idle time if it does not."""

from drivetrain.core.errors import BadInputError
from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.simulator import simulate

__all__ = ["check_accumulation"]


def check_accumulation(
    schedule_name: str, *, stages: int, accumulation: int, samples_each: int | None = None
) -> str | None:
    """Returns a warning with the idle time, or None; raises BadInputError if the schedule cannot run at all.

    `samples_each` is given if the user chose --global-batch-size: the samples that one more accumulated
    micro-batch adds to it. The error then suggests a global batch.
    """
    if stages < 2:
        return None
    if schedule_name == "grouped":
        _check_whole_groups(stages, accumulation, samples_each)
    better = _better_accumulation(schedule_name, stages=stages, accumulation=accumulation)
    if better is None:
        return None
    return (
        f"--gradient-accumulation-count {accumulation} {_flaw(schedule_name, stages)}: the {schedule_name} "
        f"schedule leaves devices idle for {_idle(schedule_name, stages, accumulation)} of the time, but "
        f"{_idle(schedule_name, stages, better)} with {better} (if all stages take equally long)."
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
        f"The grouped schedule with {stages} stages needs a multiple of {group} accumulated micro-batches, "
        f"not {accumulation} (--gradient-accumulation-count); {works}."
    )


def _better_accumulation(schedule_name: str, *, stages: int, accumulation: int) -> int | None:
    """The next larger accumulation count that suits the schedule; None if this one already does."""
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
    """The idle share if every stage has its own device and a backward pass takes two forward times."""
    schedule = build_schedule(schedule_name, micro_batches=accumulation, device_of=range(stages))
    bubble = simulate(schedule, forward_s=[1.0] * stages, backward_s=[2.0] * stages).bubble
    return f"{100 * bubble:.1f} %"
