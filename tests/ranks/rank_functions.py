"""What ranks do in the tests of the launcher; rank processes import it by name, so it is without torch."""

import atexit
import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from drivetrain.core.errors import BadInputError
from drivetrain.ranks.find_place import find_place
from drivetrain.ranks.launch import launch
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.ranks.rank_process import keep_log
from drivetrain.run.stopping import listen_for_stop
from tests.deadlines import HANG_S, wait_until

# Longer than any test may take.
LONG_S = 3600.0


def own_place() -> RankPlace:
    place = find_place(os.environ)
    assert place is not None
    return place


def arrive(folder: Path, *, ranks: int) -> RankPlace:
    """Leaves this process's id in the folder and waits until every rank has."""
    place = own_place()
    # Others only count such files before they read them, so one must appear whole.
    (folder / f".{place.rank}").write_text(str(os.getpid()))
    (folder / f".{place.rank}").rename(folder / f"pid-{place.rank}")
    wait_until(lambda: len(list(folder.glob("pid-*"))) >= ranks)
    return place


def pids_in(folder: Path) -> list[int]:
    return [int(path.read_text()) for path in sorted(folder.glob("pid-*"))]


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def write_place(folder: Path) -> None:
    place = own_place()
    threads = os.environ["OMP_NUM_THREADS"]
    local = f"{place.local_rank} of {place.local_world_size}"
    (folder / f"place-{place.rank}").write_text(
        f"{place.rank} of {place.world_size}, here {local}, {place.launcher}, {threads} threads"
    )


def write_torch_threads(folder: Path) -> None:
    import torch

    (folder / f"threads-{own_place().rank}").write_text(str(torch.get_num_threads()))


def return_status(statuses: list[int]) -> int:
    return statuses[own_place().rank]


def fail(folder: Path, ranks: int, failing: int, how: str) -> None:
    """One rank fails in a certain way while all others would go on for long."""
    if arrive(folder, ranks=ranks).rank != failing:
        time.sleep(LONG_S)
        return
    if how == "exception":
        raise ValueError("weights of layer conv1 are odd")
    if how == "bad input":
        raise BadInputError("--data-dir nowhere is not here; try --data-dir data.")
    if how == "exit":
        sys.exit(3)
    if how == "silent exit":
        os._exit(4)
    os.kill(os.getpid(), signal.SIGKILL)


def be_deaf(folder: Path, ranks: int) -> None:
    """All but rank 0, which fails, take no notice of SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if arrive(folder, ranks=ranks).rank == 0:
        raise ValueError("the cause")
    time.sleep(LONG_S)


def start_helper_and_die(folder: Path) -> None:
    """Rank 1 is killed while a process that it started, like a loader worker, lives."""
    if own_place().rank == 1:
        helper = subprocess.Popen([sys.executable, "-c", f"import time; time.sleep({LONG_S})"])
        (folder / "pid-helper").write_text(str(helper.pid))
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(LONG_S)


def crash(folder: Path, ranks: int) -> None:
    """Rank 1 dies as compiled code does."""
    if arrive(folder, ranks=ranks).rank == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    time.sleep(LONG_S)


def find_bad_input() -> None:
    time.sleep(0.2 * own_place().rank)
    raise BadInputError("--replicas 3 does not divide the global batch of 64; --replicas 2 does.")


def stop_when_asked(folder: Path, ranks: int) -> int:
    """A training that stops at its next update, as `train` does."""
    with listen_for_stop() as stop:
        arrive(folder, ranks=ranks)
        while not stop.made:
            time.sleep(0.02)
        # The rest of an update and a checkpoint, in which a second signal would be fatal.
        time.sleep(0.5)
        (folder / f"stopped-{own_place().rank}").touch()
        return stop.exit_status


def never_stop(folder: Path, ranks: int) -> int:
    """Notes that it was asked to stop, but does not."""
    with listen_for_stop() as stop:
        arrive(folder, ranks=ranks)
        while not stop.made:
            time.sleep(0.02)
        (folder / f"asked-{own_place().rank}").touch()
        time.sleep(LONG_S)
        return stop.exit_status


def sleep(folder: Path, ranks: int) -> None:
    arrive(folder, ranks=ranks)
    time.sleep(LONG_S)


def fail_at_first(folder: Path, failures: int) -> None:
    """Fails in the first attempts only."""
    place = own_place()
    (folder / f"attempt-{place.restart}-{place.rank}").touch()
    if place.rank == 1 and place.restart < failures:
        raise ValueError(f"failure {place.restart}")
    if place.restart < failures:
        time.sleep(LONG_S)


def talk(folder: Path, keeps: bool) -> None:
    rank = own_place().rank
    print(f"rank {rank} early")
    print(f"rank {rank} error", file=sys.stderr)
    if keeps:
        keep_log(folder / f"rank-{rank}.log")
    print(f"rank {rank} late")


def meet_and_fail(folder: Path, ranks: int, failing: int) -> None:
    """The others wait in a collective for a rank that fails."""
    from drivetrain.ranks.join import joined, leave

    place = arrive(folder, ranks=ranks)
    with joined(place, device="cpu", timeout_s=HANG_S) as group:
        group.barrier()
        if place.rank == failing:
            # The others notice at once and are the first to report.
            leave()
            time.sleep(0.5)
            raise ValueError("the cause")
        group.barrier()


def meet_and_hang(folder: Path, ranks: int, hanging: int) -> None:
    """The others wait in a collective for a rank that does something else for ever."""
    from drivetrain.ranks.join import joined

    place = arrive(folder, ranks=ranks)
    with joined(place, device="cpu", timeout_s=HANG_S) as group:
        group.barrier()
        group.set_timeout(1.0)
        if place.rank == hanging:
            do_something_else()
        group.barrier()


def do_something_else() -> None:
    time.sleep(LONG_S)


def main() -> int:
    """A launcher of its own, for the tests that send signals to one: FUNCTION FOLDER RANKS."""
    name, folder, ranks = sys.argv[1:]
    target = {"stop": stop_when_asked, "never": never_stop, "sleep": sleep}[name]
    return launch(target, args=(Path(folder), int(ranks)), ranks=int(ranks), grace_s=1.0).settle()


if __name__ == "__main__":
    sys.exit(main())


def abort_in_a_destructor(folder: Path) -> int:
    """Leaves a library that aborts when it is unloaded, and an exit function of Python."""
    libc = ctypes.CDLL(None)
    libc.__cxa_atexit(ctypes.cast(libc.abort, ctypes.c_void_p), None, None)
    atexit.register((folder / "exit function").write_text, "ran")
    return 0
