"""What one layout computes, as plain numbers: its first gradient, its losses, its statistics, its weights."""

import copy
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from drivetrain.cluster.devices import choose_device
from drivetrain.cluster.replica_group import ReplicaGroup
from drivetrain.models.prepare import rebuild_model
from drivetrain.plan.build import plan_training
from drivetrain.program.training import TrainingProgram
from drivetrain.recipe.schema import Recipe
from drivetrain.run.assemble import assemble
from drivetrain.verify.layouts import Layout
from drivetrain.verify.subject import Subject

__all__ = ["DtypeName", "Measurement", "RankPart", "measure_rank"]

DtypeName = Literal["float32", "float64"]
Arrays = dict[str, NDArray[np.floating[Any]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Gradients and batch-norm statistics after the first update, losses of all, weights after the last.

    `draws_from_torch` tells that the model used torch's own generator.
    """

    gradients: Arrays
    statistics: Arrays
    losses: NDArray[np.float64]
    weights: Arrays
    draws_from_torch: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPart:
    """What one rank hands back: the first one the measurement, all a digest of what they ended with."""

    measurement: Measurement | None
    digest: str


def measure_rank(group: ReplicaGroup, subject: Subject, layout: Layout, dtype: DtypeName) -> RankPart:
    """Trains the subject's few updates as one replica of a layout."""
    recipe = _recipe_of(subject, layout)
    program = _build(subject, recipe=recipe, dtype=dtype, group=group)
    assert recipe.max_updates is not None
    try:
        program.model.train()
        program.run_update(0)
        gradients = _copied(program.parameters.named_views(program.parameters.gradients))
        statistics = _copied(_statistics(program.model))
        for update in range(1, recipe.max_updates):
            program.run_update(update)
    finally:
        program.feed.close()
    weights = _copied(program.parameters.named_views(program.parameters.values))
    digest = _digest(*weights.values(), *_copied(_statistics(program.model)).values())
    if not group.is_first:
        return RankPart(measurement=None, digest=digest)
    measurement = Measurement(
        gradients=gradients,
        statistics=statistics,
        losses=program.records.read("loss", 0, recipe.max_updates),
        weights=weights,
        draws_from_torch=_has_drawn(),
    )
    return RankPart(measurement=measurement, digest=digest)


def _recipe_of(subject: Subject, layout: Layout) -> Recipe:
    changes: dict[str, Any] = {
        "replicas": layout.replicas,
        "micro_batch_size": layout.micro,
        "gradient_accumulation_count": layout.accumulation,
        "global_batch_size": None,
        "dbn_replica_group_size": layout.group,
    }
    return subject.recipe.model_copy(update=changes)


def _build(subject: Subject, *, recipe: Recipe, dtype: DtypeName, group: ReplicaGroup) -> TrainingProgram:
    """The program that `train` would run, of a model in the wanted type."""
    if subject.model is None:
        model = rebuild_model(recipe, subject.data.spec)
        recipe = recipe.model_copy(update={"model_edit": ()})
    else:
        model = copy.deepcopy(subject.model)
    model = model.to(getattr(torch, dtype))
    if dtype == "float64":
        # Samples are prepared in float32, which every layout does alike.
        model.register_forward_pre_hook(_widen_images)
    return assemble(
        recipe,
        data=subject.data,
        model=model,
        plan=plan_training(recipe, samples=len(subject.data.train)),
        device=choose_device("cpu"),
        group=group,
    ).program


def _widen_images(_model: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(value.double() if isinstance(value, Tensor) else value for value in inputs)


def _statistics(model: nn.Module) -> Iterable[tuple[str, Tensor]]:
    """What a model keeps beside its weights, a user's own kinds of norms included."""
    return ((name, buffer) for name, buffer in model.named_buffers() if buffer.is_floating_point())


def _copied(tensors: Iterable[tuple[str, Tensor]]) -> Arrays:
    return {name: tensor.detach().cpu().numpy().copy() for name, tensor in tensors}


def _digest(*arrays: NDArray[Any]) -> str:
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(array.tobytes())
    return digest.hexdigest()


def _has_drawn() -> bool:
    """Whether torch's generator has moved since the program last seeded it."""
    fresh = torch.Generator().manual_seed(torch.default_generator.initial_seed())
    return not torch.equal(fresh.get_state(), torch.default_generator.get_state())
