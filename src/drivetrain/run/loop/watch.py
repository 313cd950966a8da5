"""Observers of the updates of a run: --profile, and the activity note that is read when a rank dies."""

from collections.abc import Iterator
from contextlib import contextmanager

from drivetrain.console.reporter import Reporter
from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.activity_note import ActivityNote, Doing, own_note
from drivetrain.recipe.schema import Recipe
from drivetrain.run.loop.forced_shortage import ShortageObserver, forced_shortage
from drivetrain.run.loop.profile import RunProfile, plan_profile
from drivetrain.schedules.actions import Action, Kind
from drivetrain.schedules.observer import Observer, Part, all_of

__all__ = ["NotingObserver", "noted", "watch_run"]

_OF_KIND = {kind: Doing[kind.name] for kind in Kind}
_OF_PART = {
    Part.PASSES: Doing.UPDATE,
    Part.GRADIENT_SUM: Doing.GRADIENT_SUM,
    Part.OPTIMISER: Doing.OPTIMISER,
}


class NotingObserver:
    """Keeps the activity note of a rank up to date; the start of an action implies the end of the last."""

    sees_ends = False

    def __init__(self, note: ActivityNote) -> None:
        self._note = note

    def begins(self, device: int, action: Action) -> None:  # noqa: ARG002
        self._note.turn_to_pass(_OF_KIND[action.kind], action.stage, action.micro_batch)

    def ended(self, device: int, what: str, action: Action, *, start_s: float) -> None:
        """Never called, because `sees_ends` is False."""

    def part_begins(self, update: int, part: Part) -> None:
        self._note.turn_to(_OF_PART[part], update=update)

    def part_ended(self, update: int, part: Part, *, start_s: float) -> None:  # noqa: ARG002
        if part is Part.OPTIMISER:
            # Events after an update name the number of finished updates, counted from 1.
            self._note.turn_to(Doing.AFTER_UPDATE, update=update + 1)


@contextmanager
def noted(doing: Doing, *, update: int) -> Iterator[None]:
    """Notes in this rank's activity note, if it has one, what it does after `update` updates."""
    note = own_note()
    if note is None:
        yield
        return
    note.turn_to(doing, update=update)
    yield
    note.turn_to(Doing.AFTER_UPDATE, update=update)


def watch_run(
    program: TrainingProgram,
    recipe: Recipe,
    *,
    first: int,
    total: int,
    reporter: Reporter,
    outline: RunOutline | None = None,
) -> RunProfile | None:
    """Attaches the observers to updates first..total-1; returns the profile if --profile is given.

    A single process has no activity note.
    """
    profile = None
    if recipe.profile is not None:
        profile = plan_profile(
            program, recipe.profile, first=first, total=total, reporter=reporter, outline=outline
        )
    observers: list[Observer] = []
    forced = forced_shortage(rank=program.group.rank, batch_size=recipe.micro_batch_size)
    if forced is not None:
        observers.append(ShortageObserver(forced))
    note = own_note()
    if note is not None:
        own = () if program.stages is None else program.stages.own
        note.place(_place(program, own), stages=len(own))
        observers.append(NotingObserver(note))
    if profile is not None:
        observers.append(profile.recorder)
    program.watch(all_of(observers))
    return profile


def _place(program: TrainingProgram, own: tuple[int, ...]) -> str:
    """Stages and replica of a rank, such as "stage 1 of replica 0"; empty without stages."""
    if program.groups.devices.size == 1:
        return ""
    numbers = [str(stage) for stage in own]
    listed = f"stage {numbers[0]}"
    if len(numbers) > 1:
        listed = f"stages {', '.join(numbers[:-1])} and {numbers[-1]}"
    return f"{listed} of replica {program.groups.replicas.rank}"
