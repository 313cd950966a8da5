"""Checks that two processes on this machine can connect and run an all-reduce."""

import os
from datetime import timedelta

from drivetrain.doctor.finding import Finding, note, ok

__all__ = ["check_ranks"]

# Generous: a busy machine can take a minute to start two processes.
_TIMEOUT_S = 300.0
_RANKS = 2
_WRONG_SUM = 3
_LONGEST_REASON = 200


def check_ranks() -> Finding:
    """Starts two ranks in the same way as `--replicas 2`, and runs one all-reduce."""
    from drivetrain.ranks.launch import launch

    try:
        result = launch(_add_up, ranks=_RANKS, threads_per_rank=1)
    except OSError as error:
        return _explained(str(error))
    if result.failed is not None:
        return _explained(result.failed.message)
    if result.exit_status != 0:
        return _explained(f"exit status {result.exit_status}")
    return ok(
        "ranks", "an all-reduce of two processes works (gloo, loopback interface), so --replicas works."
    )


def _explained(why: str) -> Finding:
    shortened = " ".join(why.split())[:_LONGEST_REASON]
    return note(
        "ranks",
        f"an all-reduce of two processes failed over the loopback interface ({shortened}), so --replicas and "
        "--stages do not work here; training in one process works.",
    )


def _add_up() -> int:
    import torch
    import torch.distributed as dist

    from drivetrain.ranks.find_place import find_place
    from drivetrain.ranks.join import joined

    place = find_place(os.environ)
    assert place is not None, "a launched rank finds its place in its environment"
    with joined(place, device="cpu", timeout_s=_TIMEOUT_S):
        numbers = torch.full((1024,), float(place.rank + 1))
        dist.all_reduce(numbers, async_op=True).wait(timedelta(seconds=_TIMEOUT_S))
    return 0 if (numbers == sum(range(1, _RANKS + 1))).all() else _WRONG_SUM
