"""Writes checkpoints while the training goes on: checksums and the disk keep no device waiting."""

from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from drivetrain.run.checkpoint import prune_checkpoints, save_checkpoint
from drivetrain.run.program_state import ProgramState

__all__ = ["CheckpointWriter"]


class CheckpointWriter:
    """One checkpoint at a time, in a thread of its own.

    A failed write is raised by the next `start` or `wait`; used as a context, what was begun is on disk at
    its end, whatever ended it.
    """

    def __init__(self, parent: Path, *, keep_last: int) -> None:
        self._parent, self._keep_last = parent, keep_last
        self._thread: ThreadPoolExecutor | None = None
        self._copied: ProgramState | None = None
        self._begun: Future[None] | None = None

    def start(
        self, copied: ProgramState, *, update: int, state: Mapping[str, Any], best_update: int | None
    ) -> None:
        """Begins to write checkpoints/<update> of a state that nobody else changes, then drops old ones."""
        self.wait()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._copied = copied
        self._begun = self._thread.submit(
            self._write, copied, update=update, state=dict(state), best_update=best_update
        )

    def wait(self) -> ProgramState | None:
        """Returns when the last checkpoint begun is whole, and raises why where it is not.

        What it was written from is given back, for the next copy to overwrite.
        """
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.result()
        return self._copied

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._thread is not None:
            self._thread.shutdown()
            self._thread = self._copied = None
        if kind is None:
            self.wait()

    def _write(
        self, copied: ProgramState, *, update: int, state: dict[str, Any], best_update: int | None
    ) -> None:
        save_checkpoint(
            self._parent,
            update=update,
            model=copied.model,
            optimiser=copied.optimiser,
            averaged=copied.averaged,
            state=state,
        )
        kept = set() if best_update is None else {best_update}
        prune_checkpoints(self._parent, keep_last=self._keep_last, keep_updates=kept)
