"""environment.json: the machine and the software that a run was started with."""

import os
import platform
from typing import Any

import torch

from drivetrain.core.version import VERSION
from drivetrain.devices.processor import read_processor
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.layout import rank_count
from drivetrain.recipe.schema import Recipe

__all__ = ["environment_of"]


def environment_of(program: TrainingProgram, recipe: Recipe) -> dict[str, Any]:
    """What the numbers of a run may depend on, as plain values; of this process where ranks could differ."""
    accelerator = torch.version.cuda or torch.version.hip
    return {
        "drivetrain": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.platform(),
        "processor": read_processor().name,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": program.device.description,
        "device_type": program.device.torch_device.type,
        "ranks": rank_count(recipe),
        "precision": program.precision.description,
        "compile": recipe.compile,
        "capture": recipe.capture,
        **({} if accelerator is None else {"accelerator_libraries": accelerator}),
    }
