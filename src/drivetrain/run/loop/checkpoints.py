"""Checkpoints during training: the state is copied while training waits, and written while it continues."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field

from drivetrain.ranks.activity_note import Doing
from drivetrain.run.loop.context import RunContext
from drivetrain.run.loop.watch import noted
from drivetrain.state.checkpoint_writer import CheckpointWriter
from drivetrain.state.saver import copy_sound_state
from drivetrain.state.updates_file import save_history
from drivetrain.store.best import Best

__all__ = ["RunCheckpoints", "SpoiltStateError"]

# Time that --max-time reserves for a checkpoint before the first one was measured: weights, two optimiser
# states and an average (4 copies), at the speed of a slow disk, 100 MB/s. Too long only stops a run early.
_STATE_COPIES, _GUESSED_WRITING = 4, 100e6


class SpoiltStateError(Exception):
    """The state may hold anything, because another rank ran out of memory and left."""


def _is_never_spoilt() -> bool:
    return False


@dataclass(slots=True, kw_only=True)
class RunCheckpoints:
    """Saves checkpoints of a run; keeps the newest ones and the best.

    `may_be_spoilt` says whether collectives were broken off whose results are in the state.
    """

    context: RunContext
    best: Best
    may_be_spoilt: Callable[[], bool] = _is_never_spoilt
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
        """Whether the last write failed, so that the next event saves again.

        Always False with several ranks: only rank 0 would know, and all must save together.
        """
        return self.writer.has_failed and self.context.is_alone

    def save(self, update: int) -> None:
        """Copies the state and starts writing it; training continues meanwhile.

        If the previous write failed, waits for this one: two failures in a row end the run.
        """
        context, limit = self.context, self.context.limit
        with self._waiting(update):
            room, failure = self.writer.settle()
            with nullcontext() if limit is None else limit.timing("copying"):
                copied = copy_sound_state(context.program, update=update, room=room)
            # Only now: what was broken off before the copy was complete was known by then.
            if self.may_be_spoilt():
                raise SpoiltStateError(f"The state after update {update} is not saved.")
            if copied is None:
                return
            save_history(context.directory.updates, context.program.records, updates=update)
            state = {"best": self.best.as_json(), "samples": context.samples_until(update)}
            self.writer.start(copied, update=update, state=state, best_update=self.best.update)
            if failure is not None:
                self.writer.wait()
                context.reporter.warn(f"{failure} The checkpoint of update {update} has been written since.")

    def wait(self, update: int) -> None:
        """Waits until the last checkpoint is on disk; `update` is the last of the run."""
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
