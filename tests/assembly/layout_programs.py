"""One update of the models in `layout_models.py`, in any layout; ranks import it by name."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from drivetrain.assembly.training_parts import Assembly, assemble
from drivetrain.data.splits import split_user_data
from drivetrain.devices.device import choose_device
from drivetrain.plan.training_plan import plan_training
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.load import resolve_recipe
from tests.models.layout_models import PlainNet

__all__ = ["Found", "LayoutJob", "build", "first_update"]

SAMPLES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class LayoutJob:
    """A model and how it trains; `factor` spoils the gradient of the first layer."""

    kind: type[PlainNet]
    options: dict[str, Any] = field(default_factory=dict)
    channels: int = 1
    factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """Gradients of the first update on this rank, its loss, and the validation after it."""

    gradients: dict[str, NDArray[Any]]
    loss: float
    measured: dict[str, float]
    warnings: list[str]


def build(group: ReplicaGroup, job: LayoutJob) -> Assembly:
    """The program that a run would have."""
    given = {"micro_batch_size": 4, "global_batch_size": SAMPLES, "max_updates": 1, "device": "cpu"}
    recipe = resolve_recipe(overrides={"model": "my_models:Net", **given, **job.options}).recipe
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (SAMPLES, 8, 8, job.channels), dtype=np.uint8)
    labels = np.arange(SAMPLES) % 3
    torch.manual_seed(0)
    return assemble(
        recipe,
        data=split_user_data(recipe, train=(images, labels), validation=(images[::-1].copy(), labels)),
        model=job.kind(channels=job.channels),
        plan=plan_training(recipe, samples=SAMPLES),
        device=choose_device("cpu"),
        group=group,
    )


def first_update(group: ReplicaGroup, job: LayoutJob) -> Found:
    """Trains one update and validates."""
    assembly = build(group, job)
    program = assembly.program
    if job.factor != 1 and "first.weight" in {segment.name for segment in program.parameters.segments}:
        weight = program.model.get_parameter("first.weight")
        weight.register_hook(lambda gradient: gradient * job.factor)  # type: ignore[no-untyped-call]
    program.model.train()
    program.run_update(0)
    views = program.parameters.named_views(program.parameters.gradients)
    gradients = {name: value.detach().numpy().copy() for name, value in views}
    assert assembly.evaluate is not None
    return Found(
        gradients=gradients,
        loss=float(program.records.read("loss", 0, 1)[0]),
        measured=assembly.evaluate().as_metrics(),
        warnings=assembly.warnings,
    )
