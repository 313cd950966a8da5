"""Why a rank failed, which of several failures caused the others, and in which layer it happened."""

import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any

from drivetrain.core.errors import BadInputError, DrivetrainError, RunFailedError

__all__ = ["RankFailure", "RankTracebackError", "failing_layer", "is_consequence", "primary_failure"]

# Errors that torch raises in a rank when another one is gone; by name, so that the launcher need not import
# torch. Some backends raise a plain RuntimeError, which only its words tell apart.
_CONNECTION_ERRORS = ("DistNetworkError", "DistStoreError", "DistBackendError", "DistQueueEmptyError")
_CONNECTION_WORDS = (
    "connection closed by peer",
    "connection reset by peer",
    "connection refused",
    "broken pipe",
    "timed out waiting",
    "timeout caused pair closure",
    "socket timeout",
    "connect timeout",
    "gloo connectfullmesh failed",
    "nccl error",
    "wait timeout",
)
# torch.compile wraps a model and holds it under this name.
_WRAPPER = "_orig_mod"


class RankTracebackError(Exception):
    """The traceback of an error in a rank, as the cause of what the launcher raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """How a rank failed, as reported by the rank or observed by the launcher.

    `is_sentence` is true if `message` was written for the user; `status` is the exit status of the command.
    `place` and `activity` say where a rank died that could not report an error itself, for example "stage 2
    of replica 0" and "during the forward pass of micro-batch 3 of update 7".
    """

    rank: int
    host: str
    time_s: float
    message: str
    status: int = DrivetrainError.exit_status
    is_sentence: bool = False
    is_consequence: bool = False
    is_interrupt: bool = False
    signal_number: int | None = None
    traceback_text: str = ""
    is_everywhere: bool = False
    place: str = ""
    activity: str = ""

    @property
    def is_bad_input(self) -> bool:
        return self.status == BadInputError.exit_status and self.is_sentence

    @property
    def sentence(self) -> str:
        """The error for the user: which rank failed and how; an error of all ranks names none."""
        place = f" ({self.place})" if self.place else ""
        return self.message if self.is_everywhere else f"rank {self.rank} on {self.host}{place} {self._verb}"

    @property
    def _verb(self) -> str:
        activity = f" {self.activity}" if self.activity else ""
        if self.signal_number is not None:
            return f"was killed by {signal.Signals(self.signal_number).name}{activity}; {self.message}"
        lost_touch = self.is_consequence and not self.is_sentence
        verb = "lost its connection to another rank" if lost_touch else "failed"
        return f"{verb}{activity}: {self.message}"

    def as_error(self) -> DrivetrainError:
        """The error for the user, with the rank's own traceback as its cause."""
        kind = BadInputError if self.is_bad_input else RunFailedError
        error = kind(self.sentence)
        if self.traceback_text:
            error.__cause__ = RankTracebackError(self.traceback_text)
        return error


def primary_failure(failures: Sequence[RankFailure]) -> RankFailure:
    """The failure to report: a cause before a consequence, and among equals the first."""
    return min(failures, key=lambda failure: (_distance_from_cause(failure), failure.time_s))


def is_consequence(error: BaseException) -> bool:
    """Whether an error, or its cause, only says that another rank is gone or late."""
    if isinstance(error, BadInputError):
        return False
    chain: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in chain:
        chain.append(link)
        link = link.__cause__
    return any(map(_is_connection_error, chain))


def _is_connection_error(error: BaseException) -> bool:
    if any(kind.__name__ in _CONNECTION_ERRORS for kind in type(error).__mro__):
        return True
    text = str(error).lower()
    return isinstance(error, RuntimeError) and any(words in text for words in _CONNECTION_WORDS)


def _distance_from_cause(failure: RankFailure) -> int:
    # After a timeout the watchdog of NCCL aborts its own process. That may be the cause of the other
    # failures, but a rank that failed with an error is the better answer.
    if failure.signal_number == signal.SIGABRT:
        return 1
    return 2 if failure.is_consequence else 0


def failing_layer(error: BaseException) -> str | None:
    """The innermost layer in which an error arose, such as "stem.conv (Conv2d)".

    It is read from the frames of the traceback, so training pays nothing for it.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return None
    for link in _causes(error):
        layers = [owner for owner in _owners(link) if isinstance(owner, torch.nn.Module)]
        if layers:
            return _innermost_named(layers)
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: list[BaseException] = []
    link: BaseException | None = error
    while link is not None and link not in seen:
        yield link
        seen.append(link)
        link = link.__cause__


def _owners(error: BaseException) -> list[Any]:
    """The objects whose methods an error passed through, outermost first.

    Only the locals of methods are read. Reading f_locals makes Python keep a copy for as long as the frame
    lives, and the frame that handles the error holds the error itself: a reference cycle.
    """
    frames = [frame for frame, _ in walk_tb(error.__traceback__)]
    return [frame.f_locals.get("self") for frame in frames if frame.f_code.co_varnames[:1] == ("self",)]


def _innermost_named(layers: list[Any]) -> str | None:
    names = {id(layer): _plain(name) for name, layer in layers[0].named_modules()}
    for layer in reversed(layers):
        if names.get(id(layer)):
            return f"{names[id(layer)]} ({type(layer).__name__})"
    return None


def _plain(name: str) -> str:
    return ".".join(part for part in name.split(".") if part != _WRAPPER)
