"""The checkpoints of a run: copied while the training waits, written while it goes on."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from drivetrain.ranks.activity_note import Doing
from drivetrain.run.loop.context import RunContext
from drivetrain.run.loop.watch import noted
from drivetrain.state.checkpoint_writer import CheckpointWriter
from drivetrain.state.saver import copy_sound_state
from drivetrain.state.updates_file import save_history
from drivetrain.store.best import Best

__all__ = ["RunCheckpoints"]

# Until a checkpoint has been written: weights, two states of the optimiser and an average, at the speed of a
# slow disk in bytes per second.
_STATE_COPIES, _GUESSED_WRITING = 4, 100e6


@dataclass(slots=True, kw_only=True)
class RunCheckpoints:
    """Keeps the state of a run after updates, and the best one so far."""

    context: RunContext
    best: Best
    writer: CheckpointWriter = field(init=False)

    def __post_init__(self) -> None:
        context = self.context
        self.writer = CheckpointWriter(
            context.directory.checkpoints, keep_last=context.recipe.keep_checkpoints
        )
        if context.limit is not None and context.recipe.checkpoints:
            values = context.program.parameters.values
            guess_s = _STATE_COPIES * values.numel() * values.element_size() / _GUESSED_WRITING
            context.limit.guess("writing", guess_s)

    @property
    def has_lost_one(self) -> bool:
        """Whether a write has failed; of several ranks only the first knows before all of them save again."""
        return self.writer.has_failed and self.context.is_alone

    def save(self, update: int) -> None:
        """Copies what is to be kept; while that is written, the training goes on.

        After a write that failed this one must succeed.
        """
        context, limit = self.context, self.context.limit
        with self._waiting(update):
            room, failure = self.writer.settle()
            with nullcontext() if limit is None else limit.timing("copying"):
                copied = copy_sound_state(context.program, update=update, room=room)
            if copied is None:
                return
            save_history(context.directory.updates, context.program.records, updates=update)
            state = {"best": self.best.as_json(), "samples": context.samples_until(update)}
            self.writer.start(copied, update=update, state=state, best_update=self.best.update)
            if failure is not None:
                self.writer.wait()
                context.reporter.warn(f"{failure} Since then, that of update {update} could be written.")

    def wait(self, update: int) -> None:
        """Returns when the last one is whole; `update` is the last of the run."""
        with self._waiting(update):
            self.writer.wait()

    @contextmanager
    def _waiting(self, update: int) -> Iterator[None]:
        clock, reporter = self.context.clock, self.context.reporter
        with (
            noted(Doing.CHECKPOINT, update=update),
            clock.measure("checkpoint"),
            reporter.showing("writing a checkpoint"),
        ):
            yield
