"""Several stages on one accelerator: that they compute what the whole model does, and what saves memory.

    python benchmarks/pipeline_memory.py --output FILE.json

Equality: one update in float32 (no TF32), every schedule, four stages on one device against the whole model.
Memory: the peak of an update as the allocator counts it, with and without each saver, beside what
`drivetrain plan` predicts.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import drivetrain
from drivetrain.assembly.training_parts import assemble
from drivetrain.bench.machine import describe_machine
from drivetrain.devices.device import choose_device
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.load import resolve_recipe
from drivetrain.run.request import prepare_request
from drivetrain.schedules.by_name import SCHEDULE_NAMES

STAGES = {"stages": "4", "device_mapping": "0 0 0 0"}
EQUALITY = {
    "cifar_resnet8": {"model": "cifar_resnet8", "dataset": "digits", "micro_batch_size": "8"},
    "unet_same": {
        "model": "unet_same",
        "model_width": "16",
        "model_params": '{"norm": "batch", "dropout": 0.5}',
        "dataset": "synthetic-em",
        "dataset_size": "64",
        "micro_batch_size": "2",
    },
}
MEMORY = {
    "recomputation": {
        "model": "unet_same",
        "model_width": "32",
        "dataset": "synthetic-em",
        "dataset_size": "64",
        "micro_batch_size": "4",
        "pipeline_schedule": "gpipe",
    },
    # Many weights and small images, so that the states are most of the memory.
    "optimizer_state_offloading": {
        "model": "resnet152",
        "dataset": "synthetic",
        "dataset_size": "64",
        "micro_batch_size": "2",
        "optimizer": "adam",
        "pipeline_schedule": "1f1b",
    },
}


def build(options: dict[str, str]) -> TrainingProgram:
    """The program that `drivetrain train` would run, of eight micro-batches per update."""
    always = {"gradient_accumulation_count": "8", "max_updates": "4", "precision": "32.32"}
    always |= {"device": "cuda", "output_dir": "unused", "validation": "False", "checkpoints": "False"}
    request = prepare_request(resolve_recipe(overrides={**always, **options}))
    device = choose_device(request.recipe.device)
    assembly = assemble(request.recipe, data=request.data, model=None, plan=request.plan, device=device)
    assembly.program.model.train()
    return assembly.program


def equality(options: dict[str, str]) -> dict[str, Any]:
    """The worst relative error of a gradient, and of a statistic, by schedule."""
    reference = build(options)
    reference.run_update(0)
    expected = _gradients(reference)
    whole = torch.cat([value.flatten() for value in expected.values()]).norm()
    results = {}
    for name in SCHEDULE_NAMES:
        program = build({**options, **STAGES, "pipeline_schedule": name})
        program.run_update(0)
        found = _gradients(program)
        errors = {
            key: float((found[key] - value).norm() / (value.norm() + 1e-2 * whole))
            for key, value in expected.items()
        }
        statistics = [
            float((mine - other).abs().max())
            for mine, other in zip(program.model.buffers(), reference.model.buffers(), strict=True)
        ]
        results[name] = {
            "worst_gradient": max(errors, key=lambda key: errors[key]),
            "error": max(errors.values()),
            "statistics": max(statistics, default=0.0),
            "ok": max(errors.values()) <= 1e-5,
        }
    return results


def _gradients(program: TrainingProgram) -> dict[str, Tensor]:
    flat = program.parameters
    return {name: view.clone() for name, view in flat.named_views(flat.gradients)}


def peak_bytes(options: dict[str, str]) -> int:
    """The most that the allocator held during an update after the first."""
    program = build(options)
    program.run_update(0)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    program.run_update(1)
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated()


def memory(name: str, case: dict[str, str]) -> dict[str, Any]:
    """Measured and predicted saving of one saver."""
    options = {**case, **STAGES}
    before, after = peak_bytes(options), peak_bytes({**options, name: "True"})
    planned: dict[str, Any] = {**options, "gradient_accumulation_count": 8, "precision": "32.32"}
    plan = drivetrain.make_plan(**planned)
    predicted = sum(device["savings"][name] for device in plan["memory"]["devices"])
    return {
        "options": options,
        "peak_bytes_without": before,
        "peak_bytes_with": after,
        "saved_bytes": before - after,
        "predicted_bytes": predicted,
        "ratio": (before - after) / predicted,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", required=True)
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    report = {
        "command": "python benchmarks/pipeline_memory.py --output FILE",
        "machine": describe_machine("auto"),
        "equality": {name: equality(options) for name, options in EQUALITY.items()},
        "memory": {name: memory(name, case) for name, case in MEMORY.items()},
    }
    Path(args.output).write_text(json.dumps(report, indent=1) + "\n")
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
