"""One epoch of `mnist_tutorial`, end to end, against two peers on the same machine in the same run.

    python benchmarks/mnist_epoch.py --data-dir DIR [--repeats 5] [--limit-train-samples N]

Peers: the same network in a plain PyTorch loop over resident float tensors in channels_last, and in
Lightning over a TensorDataset with its default Trainer. The three take turns, each repeat in a process of
its own; medians are compared. What is timed is one epoch, from the first batch to the last weight, without
imports, reading of files and set-up, which are the same for all.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from drivetrain.bench.machine import describe_machine

RESULTS = Path(__file__).parent / "results"
CONTENDERS = ("drivetrain", "plain", "lightning")
BATCH = 64
PROFILED = range(100, 200)


def load_float_images(data_dir: str, limit: int | None) -> Any:
    """MNIST as float32 tensors in [0, 1], as a plain script holds it."""
    import numpy as np
    import torch

    from drivetrain.data.splits import open_data
    from drivetrain.recipe.schema import Recipe

    source = open_data(Recipe(dataset="mnist", data_dir=data_dir, limit_train_samples=limit)).train
    images, labels = source.fetch(np.arange(len(source)))
    return torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255, torch.from_numpy(labels)


def build_network() -> Any:
    """The tutorial's network as one would write it by hand."""
    from torch import nn

    return nn.Sequential(
        nn.Conv2d(1, 32, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Dropout(0.5), nn.Linear(1600, 10),
    )  # fmt: skip


def run_plain(data_dir: str, limit: int | None) -> dict[str, float]:
    import torch
    from torch.nn import functional as F

    images, labels = load_float_images(data_dir, limit)
    model = build_network().to(memory_format=torch.channels_last)
    images = images.contiguous(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=0.01)
    begin = time.perf_counter()
    order = torch.randperm(len(labels))
    losses = []
    for first in range(0, len(labels) - BATCH + 1, BATCH):
        batch = order[first : first + BATCH]
        loss = F.cross_entropy(model(images[batch]), labels[batch])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        losses.append(loss.detach())
    seconds = time.perf_counter() - begin
    return {"seconds": seconds, "loss": float(torch.stack(losses).mean())}


def run_lightning(data_dir: str, limit: int | None) -> dict[str, float]:
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    import lightning
    import torch
    from torch.nn import functional as F
    from torch.utils.data import DataLoader, TensorDataset

    images, labels = load_float_images(data_dir, limit)

    class Module(lightning.LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.network = build_network()
            self.begin = self.end = 0.0
            self.losses: list[torch.Tensor] = []

        def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
            loss = F.cross_entropy(self.network(batch[0]), batch[1])
            self.losses.append(loss.detach())
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

        def on_train_epoch_start(self) -> None:
            self.begin = time.perf_counter()

        def on_train_epoch_end(self) -> None:
            self.end = time.perf_counter()

    module = Module()
    loader = DataLoader(TensorDataset(images, labels), batch_size=BATCH, shuffle=True, drop_last=True)
    with tempfile.TemporaryDirectory() as folder:
        lightning.Trainer(max_epochs=1, default_root_dir=folder).fit(module, loader)
    return {"seconds": module.end - module.begin, "loss": float(torch.stack(module.losses).mean())}


def run_drivetrain(data_dir: str, limit: int | None) -> dict[str, float]:
    """The command's own path, its own clock: everything between two host events, and the logging."""
    from drivetrain import train

    with tempfile.TemporaryDirectory() as folder:
        result = train(
            "mnist_tutorial",
            data_dir=data_dir,
            num_epochs=1,
            limit_train_samples=limit,
            limit_validation_samples=64,
            output_dir=f"{folder}/run",
            quiet=True,
        )
        lines = (Path(folder) / "run" / "metrics.jsonl").read_text().splitlines()
    train_event = next(json.loads(line) for line in lines if '"event": "train"' in line)
    spent = result.metrics["seconds"]
    seconds = sum(spent[part] for part in ("step", "data", "transfer", "logging"))
    return {"seconds": seconds, "loss": train_event["loss"], **{f"seconds_{k}": v for k, v in spent.items()}}


def profile_drivetrain(data_dir: str, limit: int | None) -> dict[str, float]:
    """Shares of the CPU time of our updates, by operation, largest first."""
    import torch

    from drivetrain.program.training_program import TrainingProgram

    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])
    run_update = TrainingProgram.run_update

    def profiled(self: TrainingProgram, update: int) -> None:
        if update == PROFILED.start:
            profiler.start()
        run_update(self, update)
        if update == PROFILED.stop - 1:
            profiler.stop()

    TrainingProgram.run_update = profiled  # type: ignore[method-assign]
    run_drivetrain(data_dir, limit)
    events = sorted(profiler.key_averages(), key=lambda event: -event.self_cpu_time_total)
    total = sum(event.self_cpu_time_total for event in events)
    return {event.key: round(event.self_cpu_time_total / total, 4) for event in events[:12]}


def measure(contender: str, data_dir: str, limit: int | None) -> dict[str, float]:
    """One repeat, in a process of its own."""
    command = [sys.executable, __file__, "--data-dir", data_dir, "--contender", contender]
    command += [] if limit is None else ["--limit-train-samples", str(limit)]
    output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found: dict[str, float] = json.loads(output.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--limit-train-samples", type=int)
    parser.add_argument(
        "--contender", choices=(*CONTENDERS, "profile"), help="run one repeat of this one and print it"
    )
    parser.add_argument("--output", default=str(RESULTS / "mnist_epoch-cpu-2-cores.json"))
    args = parser.parse_args()
    if args.contender:
        run = {
            "drivetrain": run_drivetrain,
            "plain": run_plain,
            "lightning": run_lightning,
            "profile": profile_drivetrain,
        }[args.contender]
        print(json.dumps(run(args.data_dir, args.limit_train_samples)))
        return
    found: dict[str, list[dict[str, float]]] = {name: [] for name in CONTENDERS}
    for repeat in range(args.repeats):
        for name in CONTENDERS:
            found[name].append(measure(name, args.data_dir, args.limit_train_samples))
            print(f"{repeat + 1}/{args.repeats} {name}: {found[name][-1]['seconds']:.2f} s")
    medians = {name: statistics.median(run["seconds"] for run in runs) for name, runs in found.items()}
    result = {
        "command": "python benchmarks/mnist_epoch.py --data-dir DIR"
        + ("" if args.limit_train_samples is None else f" --limit-train-samples {args.limit_train_samples}"),
        "machine": describe_machine(),
        "median_seconds": medians,
        "speed_against_plain": medians["plain"] / medians["drivetrain"],
        "speed_against_lightning": medians["lightning"] / medians["drivetrain"],
        "where_the_time_of_an_update_goes": measure("profile", args.data_dir, 19200),
        "runs": found,
    }
    Path(args.output).write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps({key: result[key] for key in result if key != "runs"}, indent=2))


if __name__ == "__main__":
    main()
