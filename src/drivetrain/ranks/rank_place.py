"""The place of a rank in a job, and whether a command runs alone, as a rank, or launches ranks."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from drivetrain.core.errors import BadInputError

__all__ = ["LauncherName", "RankPlace", "Start", "how_to_start"]

LauncherName = Literal["torchrun", "slurm", "mpi", "drivetrain"]

_LARGEST_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """The rank of a process, its rank on its host, and the address of the store where all ranks meet.

    `restart` counts the restarts of these ranks so far. The launcher serves the store if `launcher_serves`;
    otherwise rank 0 does, on the open socket `listen_fd` if there is one.
    """

    rank: int
    world_size: int
    local_rank: int
    local_world_size: int
    address: str
    port: int
    launcher: LauncherName
    restart: int = 0
    launcher_serves: bool = False
    listen_fd: int | None = None

    def __post_init__(self) -> None:
        problem = self._contradiction()
        if problem is not None:
            raise BadInputError(
                f"The variables of {_SPOKEN[self.launcher]} contradict each other: {problem}; "
                "start all ranks with the same launcher, or unset them."
            )

    @property
    def is_loopback(self) -> bool:
        """Whether all ranks run on this host."""
        return self.address in ("127.0.0.1", "localhost", "::1")

    def _contradiction(self) -> str | None:
        if not 0 <= self.rank < self.world_size:
            return f"rank {self.rank} of {self.world_size}"
        if not 0 <= self.local_rank < self.local_world_size:
            return f"local rank {self.local_rank} of {self.local_world_size}"
        if self.local_world_size > self.world_size:
            return f"{self.local_world_size} ranks on this host, but {self.world_size} in all"
        if not 0 < self.port <= _LARGEST_PORT:
            return f"port {self.port} is not between 1 and {_LARGEST_PORT}"
        return None


_SPOKEN: dict[LauncherName, str] = {
    "torchrun": "torchrun",
    "slurm": "SLURM",
    "mpi": "MPI",
    "drivetrain": "the Drivetrain launcher",
}


class Start(Enum):
    """How a command runs: alone, by launching ranks, or as one of several ranks."""

    ALONE = auto()
    LAUNCHES_RANKS = auto()
    AS_RANK = auto()


def how_to_start(place: RankPlace | None, *, ranks: int) -> Start:
    """Decides whether a command launches ranks; nothing else decides it.

    `place` is the place that a launcher gave this process, if any; `ranks` is the number a recipe needs.
    """
    if place is not None:
        return Start.AS_RANK
    return Start.LAUNCHES_RANKS if ranks > 1 else Start.ALONE
