"""Writes checkpoints in a background thread, so that training does not wait for checksums and the disk."""

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
    """Writes one checkpoint at a time in a background thread.

    The next `wait` raises the error of a failed write; `settle` returns it. As a context manager it finishes
    the current write when the block ends, even by an exception.
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
        """Starts writing checkpoints/<update>, then prunes old ones; nobody may change `copied` meanwhile."""
        self.wait()
        if self._thread is None:
            self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checkpoint")
        self._copied = copied
        self._begun = self._thread.submit(
            self._write, copied, update=update, state=dict(state), best_update=best_update
        )

    @property
    def has_failed(self) -> bool:
        """Whether the last write is known to have failed; does not wait for it."""
        return self._begun is not None and self._begun.done() and self._begun.exception() is not None

    def wait(self) -> None:
        """Waits until the last checkpoint is complete; raises the error if its write failed."""
        begun, self._begun = self._begun, None
        if begun is not None:
            begun.result()

    def settle(self) -> tuple[ProgramState | None, RunFailedError | None]:
        """Waits too; returns the copy that was written, for reuse of its memory, and the error, if any."""
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
            error.add_note(f"Before that, a checkpoint could not be written: {self._begun.exception()}")

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
