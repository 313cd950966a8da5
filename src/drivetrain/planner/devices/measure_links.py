"""Measures the link between two ranks of this machine: messages of several sizes, sent to and fro."""

import json
import os
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import torch
import torch.distributed as dist

from drivetrain.core.errors import RunFailedError
from drivetrain.devices.device import choose_device, device_count
from drivetrain.planner.costs import Link
from drivetrain.ranks.find_place import find_place
from drivetrain.ranks.join import joined
from drivetrain.ranks.launch import launch
from drivetrain.ranks.rank_device import choose_rank_device

__all__ = ["fit_link", "measure_link", "measured_kinds"]

# From a single number to the size of large activations.
_SIZES = (4, 2**12, 2**16, 2**20, 2**22, 2**24)
_WARM_UPS, _REPEATS = 3, 9
# Generous: a busy machine can take a minute to start two processes.
_TIMEOUT_S = 300.0
_RANKS = 2


def measured_kinds() -> tuple[str, ...]:
    """The kinds of device whose links can be measured here: an accelerator needs a second one."""
    if device_count() < _RANKS:
        return ("cpu",)
    return ("cpu", choose_device("auto").torch_device.type)


def measure_link(kind: str) -> Link:
    """The link between two ranks on devices of this kind."""
    with tempfile.TemporaryDirectory() as folder:
        outcome = Path(folder) / "seconds.json"
        launch(_send_to_and_fro, args=(kind, outcome), ranks=_RANKS, threads_per_rank=1).settle()
        if not outcome.is_file():
            raise RunFailedError("The two ranks were stopped before they had measured their link.")
        seconds = json.loads(outcome.read_text())
    return fit_link(_SIZES, seconds)


def fit_link(sizes: Sequence[int], seconds: Sequence[float]) -> Link:
    """The link whose messages take these seconds: the smallest gives the latency, the largest the speed."""
    latency_s = min(seconds)
    largest, longest_s = sizes[-1], seconds[-1]
    rest_s = max(longest_s - latency_s, longest_s / 2)
    return Link(bytes_per_s=largest / rest_s, latency_s=latency_s)


def _send_to_and_fro(kind: str, outcome: Path) -> int:
    """One rank: the median seconds of a message of each size, half of the way there and back."""
    place = find_place(os.environ)
    assert place is not None, "a launched rank finds its place in its environment"
    with joined(place, device=kind, timeout_s=_TIMEOUT_S) as group:
        device = choose_rank_device(kind, group)
        seconds = []
        for size in _SIZES:
            message = torch.zeros(size, dtype=torch.uint8, device=device.torch_device)
            trips = []
            for _ in range(_WARM_UPS + _REPEATS):
                device.synchronise()
                start_s = time.perf_counter()
                for sender in range(_RANKS):
                    if place.rank == sender:
                        dist.send(message, 1 - place.rank)
                    else:
                        dist.recv(message, sender)
                device.synchronise()
                trips.append((time.perf_counter() - start_s) / 2)
            seconds.append(median(trips[_WARM_UPS:]))
    if place.rank == 0:
        outcome.write_text(json.dumps(seconds))
    return 0
