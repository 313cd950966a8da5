"""How far a measurement has come, one call a step."""

from collections.abc import Callable

from drivetrain.console.reporter import Reporter

__all__ = ["counting"]


def counting(reporter: Reporter, *, done: int, what: str) -> Callable[[], None]:
    """Shows `what` is under way, one step further at each call."""
    calls = done

    def show() -> None:
        nonlocal calls
        calls += 1
        if reporter.progress_due():
            reporter.progress(calls, what)

    return show
