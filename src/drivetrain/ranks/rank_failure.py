"""Why a rank ended, which of several failed ranks is to blame, and in which layer of the model."""

import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from traceback import walk_tb
from typing import Any

from drivetrain.core.errors import BadInputError, DrivetrainError, RunFailedError

__all__ = ["RankFailure", "RankTracebackError", "failing_layer", "is_consequence", "primary_failure"]

# What torch raises in a rank when another one is gone; by name, as torch need not be imported here.
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
# What torch.compile puts around a model.
_WRAPPER = "_orig_mod"


class RankTracebackError(Exception):
    """The traceback of an error in a rank, as the cause of what the launcher raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """What a rank ended with, as it said itself or as the launcher saw it.

    `is_sentence` tells that `message` was written for the user, and `status` what the command ends with.
    `place` and `activity` are what an end without a word came from, as in "stage 2 of replica 0" and "during
    the forward pass of micro-batch 3 of update 7".
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
        """What a person reads: who failed, and how; a mistake that all ranks found needs no rank."""
        place = f" ({self.place})" if self.place else ""
        return self.message if self.is_everywhere else f"rank {self.rank} on {self.host}{place} {self._verb}"

    @property
    def _verb(self) -> str:
        activity = f" {self.activity}" if self.activity else ""
        if self.signal_number is not None:
            return f"was ended by {signal.Signals(self.signal_number).name}{activity}; {self.message}"
        lost_touch = self.is_consequence and not self.is_sentence
        return f"{'lost touch with another rank' if lost_touch else 'failed'}{activity}: {self.message}"

    def as_error(self) -> DrivetrainError:
        """The error for the user, with the rank's own traceback as its cause."""
        kind = BadInputError if self.is_bad_input else RunFailedError
        error = kind(self.sentence)
        if self.traceback_text:
            error.__cause__ = RankTracebackError(self.traceback_text)
        return error


def primary_failure(failures: Sequence[RankFailure]) -> RankFailure:
    """The one to blame: a cause before a consequence, and the first of its kind."""
    return min(failures, key=lambda failure: (_distance_from_cause(failure), failure.time_s))


def is_consequence(error: BaseException) -> bool:
    """Whether an error, or what it was raised from, only tells that another rank is gone or late."""
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
    # The watch dog of NCCL ends its own process in this way when it has waited too long.
    if failure.signal_number == signal.SIGABRT:
        return 1
    return 2 if failure.is_consequence else 0


# Which layer of a model an error came from, read off the error itself: training does nothing for it.


def failing_layer(error: BaseException) -> str | None:
    """The innermost layer at work, by its name in the outermost model, as in "stem.conv (Conv2d)"."""
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
    """The objects whose methods an error went through, from the outside in.

    Only of these are the locals looked at: Python keeps what it shows of them for as long as the frame lives,
    and that of whoever handles the error holds the error itself.
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
