"""What a training raises in Python when a signal has stopped it, so that its caller does not just go on."""

import signal
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from drivetrain.run.crossval import CrossvalResult
    from drivetrain.run.train import RunResult

__all__ = ["TrainingInterrupted", "TrainingTerminated", "raise_if_signalled"]


class TrainingInterrupted(KeyboardInterrupt):
    """Ctrl-C has stopped a training, after its checkpoint; `result` tells how far it came."""

    def __init__(self, result: "RunResult | CrossvalResult") -> None:
        super().__init__(f"the training in {result.directory} was interrupted; the same call continues it")
        self.result = result


class TrainingTerminated(SystemExit):
    """SIGTERM has stopped a training, after its checkpoint; `result` tells how far it came."""

    def __init__(self, result: "RunResult | CrossvalResult") -> None:
        super().__init__(result.exit_status)
        self.result = result


def raise_if_signalled(result: "RunResult | CrossvalResult") -> None:
    """For what a signal has stopped; a training that ended by itself or by its own options is left alone."""
    if result.exit_status == 128 + signal.SIGINT:
        raise TrainingInterrupted(result)
    if result.exit_status == 128 + signal.SIGTERM:
        raise TrainingTerminated(result)
