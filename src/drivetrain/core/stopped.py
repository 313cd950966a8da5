"""What a training raises in Python when a signal has stopped it, so that its caller does not just go on."""

import signal
from pathlib import Path
from typing import Protocol

__all__ = ["StoppedResult", "TrainingTerminated", "raise_if_signalled"]


class StoppedResult(Protocol):
    """What the result of a training or a cross-validation tells here."""

    @property
    def directory(self) -> Path: ...

    @property
    def exit_status(self) -> int: ...


class TrainingTerminated(SystemExit):
    """Raised when SIGTERM stopped a training, after its checkpoint; `result` says how far it got."""

    def __init__(self, result: StoppedResult) -> None:
        super().__init__(result.exit_status)
        self.result = result


def raise_if_signalled(result: StoppedResult) -> None:
    """Raises if a signal stopped the training, so that the caller's script does not continue."""
    if result.exit_status == 128 + signal.SIGINT:
        raise _interrupt(result)
    if result.exit_status == 128 + signal.SIGTERM:
        raise TrainingTerminated(result)


def _interrupt(result: StoppedResult) -> KeyboardInterrupt:
    """A plain KeyboardInterrupt, not a subclass: only for it does Python end a script by SIGINT."""
    interrupt = KeyboardInterrupt(
        f"the training in {result.directory} was interrupted; the same call continues it"
    )
    interrupt.result = result  # type: ignore[attr-defined]
    return interrupt
