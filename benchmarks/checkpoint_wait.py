"""How long a training waits for a checkpoint: written behind it, written at once, and by torch.save.

    python benchmarks/checkpoint_wait.py [--repeats 5] [--device auto] --output FILE.json

The state is that of `unet_medical` under Adam with averaged weights: four times 34.5 million values on the
device. The ways take turns; medians, of which the first copy into new memory is one. Checksums, and files
that are forced to disk, belong to drivetrain's checkpoints and not to torch.save's.
"""

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from drivetrain import create_model
from drivetrain.bench.machine import describe_machine
from drivetrain.devices.device import Device, choose_device
from drivetrain.ranks.replica_group import ALONE
from drivetrain.state.checkpoint_writer import CheckpointWriter
from drivetrain.state.program_state import ProgramState
from drivetrain.state.tensor_exchange import gather_tensors
from drivetrain.store.checkpoint import save_checkpoint


def unet_state(device: Device) -> ProgramState:
    """Random weights, both moments and averages."""
    shapes = {name: value.shape for name, value in create_model("unet_medical").state_dict().items()}

    def draw(prefix: str = "") -> dict[str, Tensor]:
        return {
            prefix + name: torch.randn(shape, device=device.torch_device) for name, shape in shapes.items()
        }

    return ProgramState(model=draw(), optimiser=draw("m/") | draw("v/"), averaged=draw())


def copied_to_host(state: ProgramState, *, room: ProgramState | None) -> ProgramState:
    """What a run copies for a checkpoint; `room` is an earlier copy."""
    room = room or ProgramState()
    return ProgramState(
        model=gather_tensors(state.model, devices=ALONE, room=room.model),
        optimiser=gather_tensors(state.optimiser, devices=ALONE, room=room.optimiser),
        averaged=gather_tensors(state.averaged, devices=ALONE, room=room.averaged),
    )


def write_at_once(state: ProgramState, folder: Path) -> None:
    save_checkpoint(
        folder,
        update=1,
        model=state.model,
        optimiser=state.optimiser,
        averaged=state.averaged,
        state={},
    )


def write_with_torch(state: ProgramState, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    content = {"model": state.model, "optimizer": state.optimiser, "averaged": state.averaged}
    torch.save(content, folder / "checkpoint.pt")


def seconds_of(work: Callable[[], object], device: Device) -> float:
    device.synchronise()
    begin = time.perf_counter()
    work()
    device.synchronise()
    return time.perf_counter() - begin


def take_turns(state: ProgramState, folder: Path, *, repeats: int, device: Device) -> dict[str, list[float]]:
    """Seconds of every way; the write behind is over before the next way begins."""
    found: dict[str, list[float]] = {"behind": [], "behind, until whole": [], "at once": [], "torch.save": []}
    with CheckpointWriter(folder / "behind", keep_last=1) as writer:

        def begin_behind() -> None:
            room, _ = writer.settle()
            writer.start(copied_to_host(state, room=room), update=1, state={}, best_update=None)

        for _ in range(repeats):
            waited_s = seconds_of(begin_behind, device)
            found["behind"].append(waited_s)
            found["behind, until whole"].append(waited_s + seconds_of(writer.wait, device))
            found["at once"].append(seconds_of(lambda: write_at_once(state, folder / "at-once"), device))
            found["torch.save"].append(seconds_of(lambda: write_with_torch(state, folder / "torch"), device))
            os.sync()  # Else the next way waits for what torch.save has left to the system.
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--output", required=True)
    args = parser.parse_args()
    device = choose_device(args.device)
    state = unet_state(device)
    parts = (state.model, state.optimiser, state.averaged)
    with tempfile.TemporaryDirectory() as folder:
        found = take_turns(state, Path(folder), repeats=args.repeats, device=device)
    report = {
        "command": f"python benchmarks/checkpoint_wait.py --repeats {args.repeats} --device {args.device}",
        "machine": describe_machine(args.device),
        "bytes": sum(value.nbytes for part in parts for value in part.values()),
        "median_seconds": {way: round(statistics.median(values), 4) for way, values in found.items()},
        "seconds": {way: [round(value, 4) for value in values] for way, values in found.items()},
    }
    Path(args.output).write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report["median_seconds"], indent=1))


if __name__ == "__main__":
    main()
