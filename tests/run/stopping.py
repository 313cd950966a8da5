"""Calls that a signal may stop."""

from collections.abc import Callable
from typing import Any, TypeVar

from drivetrain import TrainingTerminated

__all__ = ["result_of"]

Result = TypeVar("Result")


def result_of(call: Callable[..., Result], **options: Any) -> Result:
    """What a training in Python came to, be it that a signal has stopped it."""
    try:
        return call(**options)
    except (KeyboardInterrupt, TrainingTerminated) as stopped:
        if not hasattr(stopped, "result"):
            raise
        result: Any = stopped.result
        return result  # type: ignore[no-any-return]
