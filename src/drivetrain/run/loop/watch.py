"""Who looks on at the updates of a run: its profile, and the note that is read when a rank dies."""

from collections.abc import Iterator
from contextlib import contextmanager

from drivetrain.console.reporter import Reporter
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.activity_note import ActivityNote, Doing, own_note
from drivetrain.recipe.schema import Recipe
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
    """Keeps a rank's note up to date; each beginning tells of the end before it."""

    sees_ends = False

    def __init__(self, note: ActivityNote) -> None:
        self._note = note

    def begins(self, device: int, action: Action) -> None:  # noqa: ARG002
        self._note.turn_to_pass(_OF_KIND[action.kind], action.stage, action.micro_batch)

    def ended(self, device: int, what: str, action: Action, *, start_s: float) -> None:
        """Is not called."""

    def part_begins(self, update: int, part: Part) -> None:
        self._note.turn_to(_OF_PART[part], update=update)

    def part_ended(self, update: int, part: Part, *, start_s: float) -> None:  # noqa: ARG002
        if part is Part.OPTIMISER:
            # What follows belongs to the updates that are done, which count from 1.
            self._note.turn_to(Doing.AFTER_UPDATE, update=update + 1)


@contextmanager
def noted(doing: Doing, *, update: int) -> Iterator[None]:
    """This rank's note, where it has one, tells of an event after `update` updates."""
    note = own_note()
    if note is None:
        yield
        return
    note.turn_to(doing, update=update)
    yield
    note.turn_to(Doing.AFTER_UPDATE, update=update)


def watch_run(
    program: TrainingProgram, recipe: Recipe, *, first: int, total: int, reporter: Reporter
) -> RunProfile | None:
    """Lets everybody look on at updates first..total-1 who wants to; returns the profile asked for.

    A process that stands alone has no note to write.
    """
    profile = None
    if recipe.profile is not None:
        profile = plan_profile(program, recipe.profile, first=first, total=total, reporter=reporter)
    observers: list[Observer] = []
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
    """Which part of the training a rank is; without stages its rank says it."""
    if program.groups.devices.size == 1:
        return ""
    numbers = [str(stage) for stage in own]
    listed = f"stage {numbers[0]}"
    if len(numbers) > 1:
        listed = f"stages {', '.join(numbers[:-1])} and {numbers[-1]}"
    return f"{listed} of replica {program.groups.replicas.rank}"
