"""A copy of the model without memory (meta tensors) but with the layers of training, for plans."""

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from drivetrain.layers.batch_norm import install_batch_norm_owner
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.known_layers import install_counter_dropout
from drivetrain.models.half_weights import halve_weights
from drivetrain.models.memory_format import in_memory_format
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.schema import Recipe

__all__ = ["RunOutline", "outline_of", "outline_run"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutline:
    """What a plan needs to know about a run: a copy of its model on the meta device, its stages, its images.

    `plan` is None if the model runs in one piece. `images` is the shape of a micro-batch.
    """

    recipe: Recipe
    model: nn.Module
    plan: StagePlan | None
    images: tuple[int, int, int, int]

    def as_trained(self, *, counter_dropout: bool = True) -> "RunOutline":
        """The outline with the layers used in training; `counter_dropout=False` keeps torch's own dropout."""
        twin = _without_memory(self.model)
        if self.recipe.precision == "16.16":
            halve_weights(twin, getattr(torch, self.recipe.half_type))
        if counter_dropout:
            context = UpdateContext(torch.device("cpu"))
            install_counter_dropout(twin, seed=self.recipe.seed, context=context)
        install_batch_norm_owner(
            twin,
            kept_share=self.recipe.bn_momentum,
            group=ReplicaGroup(size=self.recipe.dbn_replica_group_size),
            stable=self.recipe.stable_norm,
        )
        in_memory_format(twin)
        return replace(self, model=twin, plan=_on(twin, self.plan))


def outline_run(
    recipe: Recipe, model: nn.Module, *, plan: StagePlan | None, images: Sequence[int]
) -> RunOutline | None:
    """The outline of a run, or None if the recipe asks for nothing that needs a memory prediction.

    Call it before the model is changed or moved to a device. It is cheap.
    """
    asks_for_memory = recipe.optimizer_state_offloading or recipe.optimise_for is not None
    if plan is None and not asks_for_memory:
        return None
    return outline_of(recipe, model, plan=plan, images=images)


def outline_of(
    recipe: Recipe, model: nn.Module, *, plan: StagePlan | None, images: Sequence[int]
) -> RunOutline:
    """The outline of a run, whatever its recipe asks for; the model itself stays as it is."""
    samples, channels, height, width = images
    twin = _without_memory(model)
    return RunOutline(
        recipe=recipe, model=twin, plan=_on(twin, plan), images=(samples, channels, height, width)
    )


def _on(model: nn.Module, plan: StagePlan | None) -> StagePlan | None:
    return None if plan is None else replace(plan, traced=plan.traced.on(model))


def _without_memory(model: nn.Module) -> nn.Module:
    # Entries in the memo of deepcopy replace the tensors, so the copy never allocates memory for them.
    memo: dict[int, Any] = {id(buffer): buffer.detach().to("meta") for buffer in model.buffers()}
    for weight in model.parameters():
        memo[id(weight)] = nn.Parameter(weight.detach().to("meta"), requires_grad=weight.requires_grad)
    return deepcopy(model, memo)
