"""How long collectives were waited for, without making anybody wait for the answer."""

import time
from collections import deque
from collections.abc import Callable

import torch

__all__ = ["WaitClock"]

# Events that have come to pass are read now and then, so that a long execution does not pile them up.
_MOST_PENDING = 256


class WaitClock:
    """Adds up the seconds of waits: of this process on a CPU, of the device's stream on an accelerator."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._pending: deque[tuple[torch.Event, torch.Event]] = deque()
        self._is_complete = True

    def timed(self, wait: Callable[[], object], *, device: torch.device) -> Callable[[], object]:
        """The same wait, counted."""
        return lambda: self._on_host(wait) if device.type == "cpu" else self._on_stream(wait, device)

    def read(self) -> float | None:
        """Seconds so far; None where the device cannot tell. On an accelerator, what was waited for must
        have come: it is asked after the device was synchronised."""
        while self._pending:
            self._read_oldest()
        return self._seconds if self._is_complete else None

    def _on_host(self, wait: Callable[[], object]) -> None:
        started = time.perf_counter()
        wait()
        self._seconds += time.perf_counter() - started

    def _on_stream(self, wait: Callable[[], object], device: torch.device) -> None:
        """A wait of the stream alone: the time between two marks in it, read once both have passed."""
        try:
            begun, ended = (torch.Event(device, enable_timing=True) for _ in range(2))
            begun.record()
        except RuntimeError:
            # A device whose marks have no times.
            self._is_complete = False
            wait()
            return
        wait()
        ended.record()
        self._pending.append((begun, ended))
        while len(self._pending) > _MOST_PENDING and self._pending[0][1].query():
            self._read_oldest()

    def _read_oldest(self) -> None:
        begun, ended = self._pending.popleft()
        self._seconds += begun.elapsed_time(ended) / 1000.0
