"""environment.json: the machine and the software that a run was started with, and what its bits depend on."""

import os
import platform
from collections.abc import Mapping
from typing import Any

import numpy as np
import PIL
import torch

from drivetrain.core.version import VERSION
from drivetrain.devices.cpu_half import chosen_isa
from drivetrain.devices.processor import read_processor
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.layout import rank_count
from drivetrain.recipe.schema import Recipe

__all__ = ["change_of_bits", "environment_of"]

# What the last bits of a run depend on, in words.
_EVERYWHERE = {
    "device_type": "device {}",
    "drivetrain": "Drivetrain {}",
    "torch": "torch {}",
    "numpy": "numpy {}",
    "pillow": "Pillow {}",
    "deterministic": "--deterministic {}",
}
_ON_CPU = {
    "processor": "processor {}",
    "cpu_capability": "vector instructions {}",
    "onednn_isa": "oneDNN limited to {}",
    "threads": "--num-threads {}",
}
_ON_ACCELERATOR = {"device": "device {}", "accelerator_libraries": "CUDA or ROCm {}", "cudnn": "cuDNN {}"}


def environment_of(program: TrainingProgram, recipe: Recipe) -> dict[str, Any]:
    """What the numbers of a run may depend on, as plain values; of this process where ranks could differ."""
    accelerator = torch.version.cuda or torch.version.hip
    return {
        "drivetrain": VERSION,
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "pillow": PIL.__version__,
        "system": platform.platform(),
        "processor": read_processor().name,
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "onednn_isa": chosen_isa() or "nothing",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "device": program.device.description,
        "device_type": program.device.torch_device.type,
        "ranks": rank_count(recipe),
        "precision": program.precision.description,
        "compile": recipe.compile,
        "capture": recipe.capture,
        "deterministic": recipe.deterministic,
        **({} if accelerator is None else {"accelerator_libraries": accelerator, "cudnn": _cudnn()}),
    }


def change_of_bits(before: Mapping[str, Any], now: Mapping[str, Any]) -> str | None:
    """A sentence on everything that bits depend on and that is not as before; None if nothing is.

    What an earlier version did not record is not compared.
    """
    words = _EVERYWHERE | (_ON_CPU if now.get("device_type") == "cpu" else _ON_ACCELERATOR)
    changed = [name for name in words if name in before and before[name] != now.get(name)]
    if not changed:
        return None
    was = _listed([words[name].format(before[name]) for name in changed])
    has = _listed([words[name].format(now.get(name)) for name in changed])
    return (
        f"the run was last started with {was}, and goes on with {has}; its results stay equal within "
        "rounding, but their bits are not those of one whole run."
    )


def _listed(parts: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(parts[:-1]), parts[-1])))


def _cudnn() -> str:
    found: int | None = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
    return "none" if found is None else str(found)
