"""Programs of models whose code says more than their layers, as ranks of a pool run them by name."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from drivetrain.assembly.training_parts import assemble
from drivetrain.data.splits import split_user_data
from drivetrain.devices.device import choose_device
from drivetrain.plan.training_plan import plan_training
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.load import resolve_recipe
from tests.pipeline.telling_models import HOOKED, MODES, Fourier, hooked

Arrays = dict[str, NDArray[Any]]
SAMPLES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """One update of a model, and the logits after it on the rank of the last stage."""

    gradients: Arrays
    logits: NDArray[np.float32]
    loss: float


def telling_model(name: str) -> nn.Module:
    """A model by its name, with weights that make all its parts matter."""
    torch.manual_seed(0)
    model = Fourier() if name == "Fourier" else hooked(name) if name in HOOKED else MODES[name]()
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    return model


def telling_program(group: ReplicaGroup, model: nn.Module, options: dict[str, Any]) -> TrainingProgram:
    """A small training of a model."""
    given = {
        "micro_batch_size": 2,
        "global_batch_size": SAMPLES,
        "learning_rate": 0.01,
        "max_updates": 1,
        "num_epochs": 1,
        "device": "cpu",
        "validation": False,
        "num_classes": 10,
        "precision": "32.32",
    }
    recipe = resolve_recipe(overrides={**given, **options}).recipe
    images = np.random.default_rng(0).integers(0, 256, (SAMPLES, 8, 8, 3), dtype=np.uint8)
    data = split_user_data(recipe, train=(images, np.arange(SAMPLES) % 10), validation=None)
    plan = plan_training(recipe, samples=SAMPLES)
    device = choose_device("cpu")
    return assemble(recipe, data=data, model=model, plan=plan, device=device, group=group).program


def tell(group: ReplicaGroup, name: str, options: dict[str, Any]) -> Told:
    """Trains a model by one update and evaluates it."""
    program = telling_program(group, telling_model(name), options)
    program.model.train()
    program.run_update(0)
    gradients = _copied(program.parameters.named_views(program.parameters.gradients))
    program.model.eval()
    images = torch.linspace(-1, 1, 3 * 3 * 8 * 8).view(3, 3, 8, 8)
    with torch.no_grad():
        logits = program.forward(images.contiguous(memory_format=torch.channels_last))
    return Told(
        gradients=gradients,
        logits=logits.float().numpy().copy(),
        loss=float(program.records.read("loss", 0, 1)[0]),
    )


def _copied(tensors: Iterable[tuple[str, Tensor]]) -> Arrays:
    return {name: value.detach().double().numpy().copy() for name, value in tensors}
