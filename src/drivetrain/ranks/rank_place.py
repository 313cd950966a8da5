"""Where a rank stands among all ranks, and whether a process works alone, launches ranks or is one."""

from dataclasses import dataclass
from enum import Enum, auto
from typing import Literal

from drivetrain.core.errors import BadInputError

__all__ = ["LauncherName", "RankPlace", "Start", "how_to_start"]

LauncherName = Literal["torchrun", "slurm", "mpi", "drivetrain"]

_LARGEST_PORT = 65535


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlace:
    """One rank of `world_size`, the `local_rank`-th of its host, and where all of them meet.

    `restart` counts how often the launcher has already started these ranks again. The meeting place is the
    launcher's own when `launcher_serves`, else rank 0's, on the open socket `listen_fd` where there is one.
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
                "start all ranks by one launcher, or unset them."
            )

    @property
    def is_loopback(self) -> bool:
        """Whether all ranks meet on this very host."""
        return self.address in ("127.0.0.1", "localhost", "::1")

    def _contradiction(self) -> str | None:
        if not 0 <= self.rank < self.world_size:
            return f"rank {self.rank} of {self.world_size}"
        if not 0 <= self.local_rank < self.local_world_size:
            return f"local rank {self.local_rank} of {self.local_world_size}"
        if self.local_world_size > self.world_size:
            return f"{self.local_world_size} ranks on this host of {self.world_size} in all"
        if not 0 < self.port <= _LARGEST_PORT:
            return f"port {self.port} is not between 1 and {_LARGEST_PORT}"
        return None


_SPOKEN: dict[LauncherName, str] = {
    "torchrun": "torchrun",
    "slurm": "SLURM",
    "mpi": "MPI",
    "drivetrain": "the launcher",
}


class Start(Enum):
    """Who does the work of a command: this process, ranks that it launches, or it as one of many ranks."""

    ALONE = auto()
    LAUNCHES_RANKS = auto()
    AS_RANK = auto()


def how_to_start(place: RankPlace | None, *, ranks: int) -> Start:
    """The one place where it is decided whether a command launches ranks.

    `place` is what a launcher has told this process, if there is one; `ranks` is how many a recipe needs.
    """
    if place is not None:
        return Start.AS_RANK
    return Start.LAUNCHES_RANKS if ranks > 1 else Start.ALONE
