"""Training steps of `unet_same`, `cifar_resnet8` and `resnet50` on a CPU, against two peers in the same run.

    python benchmarks/cpu_training.py [--repeats 3] [--models unet_same resnet50] [--output FILE]

Ours is the command `drivetrain bench train` on generated data; reading, augmentation and records count.
The peers train the same module at the same batch size with the same optimiser: a loop written by hand, in
channels_last, over one batch that lies ready in memory, without any data; and Lightning with its default
Trainer and memory format, over a DataLoader of a TensorDataset (`pip install lightning`). All take
turns, each repeat in a process of its own; the median over all counted steps of all repeats is compared.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from turns import WARM_UP, step_times

from drivetrain.bench.machine import describe_machine

RESULT = Path(__file__).parent / "results" / "cpu_training-cpu-2-cores.json"
RATE, MOMENTUM = 0.01, 0.9
SAMPLES = 4
"""Batches that a data set holds."""


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A model, its input, and how the command is asked to train it."""

    model: str
    params: dict[str, Any]
    channels: int
    size: int
    classes: int
    batch: int
    decay: float
    steps: int
    options: tuple[str, ...]
    goals: dict[str, float]

    @property
    def is_dense(self) -> bool:
        return self.model.startswith("unet")


WORKLOADS = (
    Workload(
        model="unet_same",
        params={"width": 32, "depth": 4},
        channels=1,
        size=256,
        classes=2,
        batch=2,
        decay=0.0,
        steps=6,
        options=(
            *("--config", "synthetic_em", "--model-width", "32"),
            *("--model-params", "{depth: 4, norm: none}"),
        ),
        goals={"plain": 1.0, "lightning": 1.3},
    ),
    Workload(
        model="cifar_resnet8",
        params={},
        channels=3,
        size=32,
        classes=10,
        batch=125,
        decay=0.0002,
        steps=20,
        options=("--config", "cifar_resnet8_fast", "--dataset", "synthetic"),
        goals={"plain": 1.0},
    ),
    Workload(
        model="resnet50",
        params={},
        channels=3,
        size=224,
        classes=1000,
        batch=16,
        decay=0.0001,
        steps=4,
        options=("--config", "imagenet_resnet50", "--dataset", "synthetic", "--num-classes", "1000"),
        goals={"plain": 1.0, "lightning": 1.3},
    ),
)


def command_of(workload: Workload) -> list[str]:
    """What measures our side, as it is typed."""
    return [
        *("drivetrain", "bench", "train", *workload.options),
        *("--micro-batch-size", str(workload.batch), "--global-batch-size", str(workload.batch)),
        *("--image-size", str(workload.size), "--dataset-size", str(SAMPLES * workload.batch)),
        *("--data", "real", "--augment", "True", "--device", "cpu"),
        *("--warmup-steps", str(WARM_UP), "--steps", str(workload.steps), "--repeats", "1"),
    ]


def run_drivetrain(workload: Workload) -> dict[str, Any]:
    """One repeat of the command; its steps."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "result.json"
        command = [sys.executable, "-m", *command_of(workload), "--output", str(file)]
        subprocess.run(command, check=True, capture_output=True, text=True)
        repeats = json.loads(file.read_text())["entries"][0]["repeats"]
    steps = [second for repeat in repeats for second in repeat["step_seconds"]]
    return {"steps": [round(second, 4) for second in steps]}


def build_model(workload: Workload) -> Any:
    from drivetrain.models.create import build_model as build

    return build(
        workload.model,
        channels=workload.channels,
        image_size=workload.size,
        num_classes=workload.classes,
        seed=0,
        params=workload.params,
    )


def make_data(workload: Workload, samples: int) -> Any:
    """Images and labels in memory, as a plain script holds them."""
    import torch

    torch.manual_seed(0)
    sides = (workload.size, workload.size)
    images = torch.randn(samples, workload.channels, *sides)
    return images, torch.randint(workload.classes, (samples, *sides) if workload.is_dense else (samples,))


def loss_of(logits: Any, labels: Any) -> Any:
    """Cross entropy; of masks with the soft Dice, as one would write it."""
    from torch.nn import functional as F

    loss = F.cross_entropy(logits, labels)
    if labels.dim() == 1:
        return loss
    shares = logits.softmax(1).flatten(2)
    truth = F.one_hot(labels, logits.shape[1]).movedim(3, 1).flatten(2).float()
    overlap = 2 * (shares * truth).sum(2) + 1e-6
    return loss + 1 - (overlap / (shares.square().sum(2) + truth.square().sum(2) + 1e-6)).mean()


def run_plain(workload: Workload) -> dict[str, Any]:
    import torch

    images, labels = make_data(workload, workload.batch)
    model = build_model(workload).to(memory_format=torch.channels_last)
    images = images.contiguous(memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=workload.decay)
    ends = [time.perf_counter()]
    for _ in range(WARM_UP + workload.steps):
        loss = loss_of(model(images), labels)
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        ends.append(time.perf_counter())
    return _counted(ends)


def run_lightning(workload: Workload) -> dict[str, Any]:
    import logging
    import warnings

    warnings.filterwarnings("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    import lightning
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Module(lightning.LightningModule):  # type: ignore[misc, unused-ignore]
        def __init__(self) -> None:
            super().__init__()
            self.network = build_model(workload)
            self.ends: list[float] = []

        def training_step(self, batch: list[torch.Tensor], _index: int) -> torch.Tensor:
            loss: torch.Tensor = loss_of(self.network(batch[0]), batch[1])
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=workload.decay)

        def on_train_start(self) -> None:
            self.ends.append(time.perf_counter())

        def on_train_batch_end(self, *_: Any) -> None:
            self.ends.append(time.perf_counter())

    module = Module()
    data = TensorDataset(*make_data(workload, SAMPLES * workload.batch))
    loader = DataLoader(data, batch_size=workload.batch, shuffle=True)
    with tempfile.TemporaryDirectory() as folder:
        steps = WARM_UP + workload.steps
        trainer = lightning.Trainer(max_steps=steps, max_epochs=-1, default_root_dir=folder)
        trainer.fit(module, loader)
    return _counted(module.ends)


def _counted(ends: list[float]) -> dict[str, Any]:
    return {"steps": step_times(ends, loss=0.0)["steps"][WARM_UP:]}


CONTENDERS: dict[str, Callable[[Workload], dict[str, Any]]] = {
    "drivetrain": run_drivetrain,
    "plain": run_plain,
    "lightning": run_lightning,
}


def measure(workload: Workload, *, repeats: int) -> dict[str, Any]:
    """All contenders in turn, `repeats` times."""
    names = ["drivetrain", *workload.goals]
    runs: dict[str, list[list[float]]] = {name: [] for name in names}
    for repeat in range(repeats):
        # The order turns round, so that nobody always runs after the same one.
        for name in names if repeat % 2 == 0 else reversed(names):
            steps = _one_repeat(name, workload)
            runs[name].append(steps)
            print(
                f"{repeat + 1}/{repeats} {workload.model} {name}: {statistics.median(steps):.4f} s",
                flush=True,
            )
    medians = {name: statistics.median(step for steps in runs[name] for step in steps) for name in names}
    own = medians.pop("drivetrain")
    speeds = {name: round(other / own, 3) for name, other in medians.items()}
    return {
        "command": " ".join(_quoted(word) for word in command_of(workload)),
        "batch": workload.batch,
        "median_seconds": {"drivetrain": own, **medians},
        "speed_against": speeds,
        "goals": workload.goals,
        "goals_met": {name: speeds[name] >= goal for name, goal in workload.goals.items()},
        "runs": runs,
    }


def _quoted(word: str) -> str:
    return f"'{word}'" if " " in word else word


def _one_repeat(name: str, workload: Workload) -> list[float]:
    command = [sys.executable, __file__, "--contender", name, "--models", workload.model]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name} failed on {workload.model}: {done.stderr[-2000:]}")
    steps: list[float] = json.loads(done.stdout.splitlines()[-1])["steps"]
    return steps


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [workload.model for workload in WORKLOADS]
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--models", nargs="+", choices=names, default=names)
    parser.add_argument("--contender", choices=CONTENDERS, help="run one repeat of this one and print it")
    parser.add_argument("--output", default=str(RESULT))
    args = parser.parse_args(arguments)
    chosen = [workload for workload in WORKLOADS if workload.model in args.models]
    if args.contender:
        print(json.dumps(CONTENDERS[args.contender](chosen[0])))
        return
    found = {workload.model: measure(workload, repeats=args.repeats) for workload in chosen}
    command = f"python benchmarks/cpu_training.py --repeats {args.repeats}"
    result = {"command": command, "machine": describe_machine(), **found}
    Path(args.output).write_text(json.dumps(result, indent=2) + "\n")
    for model, measured in found.items():
        print(model, json.dumps(measured["speed_against"]))


if __name__ == "__main__":
    main()
