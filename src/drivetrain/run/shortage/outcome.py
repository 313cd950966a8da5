"""What is known when a run has too little memory: where it happened, and what was kept."""

from dataclasses import dataclass
from typing import Literal

import torch

from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.run.request import Request

__all__ = ["MemoryRanOutError", "RankReport", "ShortagePart", "is_out_of_memory"]

ShortagePart = Literal["update", "optimiser step", "validation", "compiling"]
# Errors of libraries below torch, and of the CPU, which has no error of its own for it.
_WORDS = ("out of memory", "can't allocate memory", "alloc_failed")


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error, or its cause, says that memory ran out."""
    link: BaseException | None = error
    for _ in range(10):
        if link is None:
            return False
        if isinstance(link, torch.OutOfMemoryError):
            return True
        if isinstance(link, RuntimeError) and any(words in str(link).lower() for words in _WORDS):
            return True
        link = link.__cause__
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class RankReport:
    """What one rank tells the others after the end of a session in which memory ran out somewhere.

    `is_whole`: its state is that after `finished` updates, so that the run can go on from there.
    """

    rank: int
    ran_out: bool
    finished: int
    part: ShortagePart
    is_whole: bool

    @property
    def where(self) -> str:
        """The place in words, with updates counted from 1."""
        return {
            "update": f"in update {self.finished + 1}",
            "optimiser step": f"in the optimiser step of update {self.finished + 1}",
            "validation": f"in the validation after update {self.finished}",
            "compiling": f"while compiling before update {self.finished + 1}",
        }[self.part]


class MemoryRanOutError(Exception):
    """Ends the session on every rank: training goes on with `request`, in the process group `group`."""

    def __init__(self, request: Request, group: ReplicaGroup) -> None:
        super().__init__()
        self.request, self.group = request, group
