"""Writes checkpoints while the training goes on: checksums and the disk keep no device waiting."""

import time
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from drivetrain.core.errors import RunFailedError
from drivetrain.state.program_state import ProgramState
from drivetrain.store.checkpoint import prune_checkpoints, save_checkpoint

__all__ = ["CheckpointWriter"]


class CheckpointWriter:
    """One checkpoint at a time, in a thread of its own.

    A failed write is raised by the next `wait`, or told by `settle`. Used as a context, what was begun is on
    disk at its end, whatever ended it.
    """

    def __init__(self, parent: Path, *, keep_last: int) -> None:
        self._parent, self._keep_last = parent, keep_last
        self._thread: ThreadPoolExecutor | None = None
        self._copied: ProgramState | None = None
        self._begun: Future[None] | None = None
        self.longest_write_s = 0.0

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

    @property
    def has_failed(self) -> bool:
        """Whether the last checkpoint begun is known to be lost; asking does not wait."""
        return self._begun is not None and self._begun.done() and self._begun.exception() is not None

    def wait(self) -> None:
        """Returns when the last checkpoint begun is whole, and raises why where it is not."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.result()

    def settle(self) -> tuple[ProgramState | None, RunFailedError | None]:
        """Waits too; gives back the copy that was written, to be overwritten by the next, and any failure."""
        try:
            self.wait()
        except RunFailedError as error:
            return self._copied, error
        return self._copied, None

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
        if error is None:
            self.wait()
        elif self.has_failed and self._begun is not None:
            error.add_note(f"Before that, a checkpoint was lost: {self._begun.exception()}")

    def _write(
        self, copied: ProgramState, *, update: int, state: dict[str, Any], best_update: int | None
    ) -> None:
        begin_s = time.perf_counter()
        save_checkpoint(
            self._parent,
            update=update,
            model=copied.model,
            optimiser=copied.optimiser,
            averaged=copied.averaged,
            buffers=copied.buffers,
            state=state,
        )
        kept = set() if best_update is None else {best_update}
        prune_checkpoints(self._parent, keep_last=self._keep_last, keep_updates=kept)
        self.longest_write_s = max(self.longest_write_s, time.perf_counter() - begin_s)
