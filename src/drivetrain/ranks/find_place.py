"""Reads the rank of a process from the environment that torchrun, SLURM, MPI or our launcher set."""

import re
import zlib
from collections.abc import Iterator, Mapping

from drivetrain.core.errors import BadInputError
from drivetrain.ranks.rank_place import RankPlace

__all__ = [
    "LISTEN_FD",
    "OWN_LAUNCHER",
    "RESTART",
    "RankPlace",
    "expand_counts",
    "expand_hosts",
    "find_place",
    "place_variables",
]

_ENTRY = re.compile(r"(?:[^,\[\]]|\[[^\[\]]*\])+")
_COUNT = re.compile(r"(\d+)(?:\(x(\d+)\))?")
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
# A range such as node[1-999999999] is a mistake; expanding it would fill the memory.
_MOST_HOSTS = 100_000
OWN_LAUNCHER = "DRIVETRAIN_LAUNCHER"
LISTEN_FD = "DRIVETRAIN_LISTEN_FD"
RESTART = "DRIVETRAIN_RESTART"
_TORCHRUN = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_OPEN_MPI = tuple(f"OMPI_COMM_WORLD_{name}" for name in ("RANK", "SIZE", "LOCAL_RANK", "LOCAL_SIZE"))
_PMI = ("PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS")
# Variables that are the same in all ranks of one mpirun and differ between two on the same host.
_MPI_JOB_NAMES = ("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "PMI_JOBID")
# SLURM uses step numbers from here on for its own steps: interactive, batch, extern. A batch script is not a
# rank, though SLURM_PROCID is set there too.
_FIRST_RESERVED_STEP = 0xFFFFFFF0
# Below the ephemeral ports (from 32768 on Linux), which other connections may hold, and above those of most
# services.
_FIRST_PORT, _PORTS = 20000, 10000
_LOOPBACK = "127.0.0.1"


def expand_hosts(text: str) -> list[str]:
    """Expands a host list of SLURM: `a,node[01-03,7]` is a, node01, node02, node03, node7."""
    entries = _ENTRY.findall(text)
    if not text or ",".join(entries) != text:
        raise _unreadable(text)
    return [host for entry in entries for host in _hosts_of(entry, whole=text)]


def expand_counts(text: str) -> list[int]:
    """Expands the tasks per node as SLURM writes them: `2(x3),1` is 2, 2, 2, 1."""
    counts: list[int] = []
    for entry in text.split(","):
        match = _COUNT.fullmatch(entry.strip())
        if match is None or int(match[2] or 1) > _MOST_HOSTS:
            raise _unreadable(text)
        counts += [int(match[1])] * int(match[2] or 1)
    return counts


def _hosts_of(entry: str, *, whole: str) -> Iterator[str]:
    """The hosts of one entry; with several brackets the first one varies slowest."""
    before, bracket, rest = entry.partition("[")
    if not bracket:
        yield before
        return
    inside, _, after = rest.partition("]")
    for number in _numbers(inside, whole=whole):
        for ending in _hosts_of(after, whole=whole):
            yield before + number + ending


def _numbers(inside: str, *, whole: str) -> Iterator[str]:
    for part in inside.split(","):
        match = _RANGE.fullmatch(part)
        if match is None:
            raise _unreadable(whole)
        first, last = match[1], match[2] or match[1]
        if not 0 <= int(last) - int(first) < _MOST_HOSTS:
            raise _unreadable(whole)
        for number in range(int(first), int(last) + 1):
            yield f"{number:0{len(first)}d}"


def _unreadable(text: str) -> BadInputError:
    return BadInputError(f"{text!r} is not a list in the format of SLURM, such as node[01-04] or 2(x4).")


def find_place(environ: Mapping[str, str]) -> RankPlace | None:
    """The place of this process among the ranks of a job; None if no launcher started it."""
    if "RANK" in environ:
        return _torchrun_place(environ)
    if _is_in_slurm_step(environ):
        return _slurm_place(environ)
    for names in (_OPEN_MPI, _PMI):
        if names[0] in environ:
            return _mpi_place(environ, names=names)
    for name in ("WORLD_SIZE", "LOCAL_RANK"):
        if name in environ:
            raise BadInputError(f"{name} is set but RANK is not; start the ranks with torchrun, or unset it.")
    return None


def place_variables(place: RankPlace) -> dict[str, str]:
    """The environment variables that our launcher sets for a rank, for `find_place` to read."""
    values = (place.rank, place.world_size, place.local_rank, place.local_world_size, place.address)
    variables = dict(zip(_TORCHRUN, map(str, (*values, place.port)), strict=True))
    variables |= {OWN_LAUNCHER: "1", RESTART: str(place.restart)}
    return variables if place.listen_fd is None else {**variables, LISTEN_FD: str(place.listen_fd)}


def _torchrun_place(environ: Mapping[str, str]) -> RankPlace:
    missing = [name for name in _TORCHRUN if not environ.get(name)]
    if missing:
        raise BadInputError(
            f"RANK is set but {missing[0]} is not; start the ranks with torchrun, or set all of "
            f"{', '.join(_TORCHRUN)}."
        )
    is_own = OWN_LAUNCHER in environ
    return RankPlace(
        rank=_number(environ, "RANK"),
        world_size=_number(environ, "WORLD_SIZE"),
        local_rank=_number(environ, "LOCAL_RANK"),
        local_world_size=_number(environ, "LOCAL_WORLD_SIZE"),
        address=environ["MASTER_ADDR"],
        port=_number(environ, "MASTER_PORT"),
        launcher="drivetrain" if is_own else "torchrun",
        restart=_number(environ, RESTART if is_own else "TORCHELASTIC_RESTART_COUNT", default=0),
        launcher_serves=environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True" and not is_own,
        listen_fd=_number(environ, LISTEN_FD) if LISTEN_FD in environ else None,
    )


def _is_in_slurm_step(environ: Mapping[str, str]) -> bool:
    """Whether srun started this process as one of several tasks."""
    step = environ.get("SLURM_STEP_ID", "")
    is_step = step.isdecimal() and int(step) < _FIRST_RESERVED_STEP
    return is_step and "SLURM_PROCID" in environ and _slurm_tasks(environ) > 1


def _slurm_tasks(environ: Mapping[str, str]) -> int:
    return _number(environ, "SLURM_STEP_NUM_TASKS" if "SLURM_STEP_NUM_TASKS" in environ else "SLURM_NTASKS")


def _slurm_place(environ: Mapping[str, str]) -> RankPlace:
    hosts = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST")
    address = environ.get("MASTER_ADDR") or (expand_hosts(hosts)[0] if hosts else None)
    if address is None:
        raise BadInputError("SLURM_STEP_NODELIST is not set; start the ranks with srun, or set MASTER_ADDR.")
    job, step = _number(environ, "SLURM_JOB_ID"), _number(environ, "SLURM_STEP_ID")
    return RankPlace(
        rank=_number(environ, "SLURM_PROCID"),
        world_size=_slurm_tasks(environ),
        local_rank=_number(environ, "SLURM_LOCALID"),
        local_world_size=_slurm_local_tasks(environ),
        address=address,
        port=_number(environ, "MASTER_PORT", default=_port_of(f"{job}.{step}")),
        launcher="slurm",
        restart=_number(environ, "SLURM_RESTART_COUNT", default=0),
    )


def _slurm_local_tasks(environ: Mapping[str, str]) -> int:
    """The number of tasks on this node: from the list of the step, or else what the job asked for."""
    counts = environ.get("SLURM_STEP_TASKS_PER_NODE") or environ.get("SLURM_TASKS_PER_NODE")
    if counts is None:
        return _number(environ, "SLURM_NTASKS_PER_NODE")
    per_node, node = expand_counts(counts), _number(environ, "SLURM_NODEID", default=0)
    if node >= len(per_node):
        raise BadInputError(f"SLURM_NODEID is {node}, but {counts} lists tasks for {len(per_node)} nodes.")
    return per_node[node]


def _mpi_place(environ: Mapping[str, str], *, names: tuple[str, ...]) -> RankPlace | None:
    rank, size = _number(environ, names[0]), _number(environ, names[1])
    if size == 1:
        return None
    local_rank, local_size = _number(environ, names[2]), _number(environ, names[3])
    if "MASTER_ADDR" not in environ and local_size != size:
        raise BadInputError(
            f"MPI started {size} ranks on several hosts; export MASTER_ADDR (the host name of rank 0) and "
            "MASTER_PORT (for example 29500) to all of them."
        )
    job = next((environ[name] for name in _MPI_JOB_NAMES if name in environ), "")
    return RankPlace(
        rank=rank,
        world_size=size,
        local_rank=local_rank,
        local_world_size=local_size,
        address=environ.get("MASTER_ADDR", _LOOPBACK),
        port=_number(environ, "MASTER_PORT", default=_port_of(job)),
        launcher="mpi",
    )


def _port_of(job: str) -> int:
    """A port derived from the name of a job, so that its ranks agree on it without talking."""
    return _FIRST_PORT + zlib.crc32(job.encode()) % _PORTS


def _number(environ: Mapping[str, str], name: str, *, default: int | None = None) -> int:
    text = environ.get(name, "")
    if not text and default is not None:
        return default
    if not text.isdecimal():
        state = f"is {text!r}, not a whole number" if text else "is not set"
        raise BadInputError(
            f"{name} {state}; start all ranks with the same launcher, or unset its variables."
        )
    return int(text)
