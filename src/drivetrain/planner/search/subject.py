"""What the search looks into: the model of a recipe, traced, without memory for its weights."""

from dataclasses import dataclass, replace
from functools import cached_property, partial

import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.models.input_form import as_model_input
from drivetrain.models.memory_format import empty_images, memory_format_of
from drivetrain.optim.optimiser import build_optimiser
from drivetrain.pipeline.cutting.cut import StageModule, cut_model
from drivetrain.pipeline.graph.shapes import ModelShapes, find_shapes
from drivetrain.pipeline.graph.trace import TracedModel, trace_model
from drivetrain.pipeline.memory.layer_memory import LayerMemory, layer_memory
from drivetrain.pipeline.memory.memory_prediction import checkpoint_bytes
from drivetrain.pipeline.memory.outline import RunOutline
from drivetrain.pipeline.memory.stage_memory import pretended_device
from drivetrain.pipeline.memory.weight_memory import WeightBytes, weight_bytes
from drivetrain.plan.precision import compute_type, is_cpu
from drivetrain.plan.training_plan import PlannedRun, look_into
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import Recipe

__all__ = ["Subject", "subject_of"]


@dataclass(frozen=True, kw_only=True)
class Subject:
    """The recipe's model, its graph and the sizes of its values for one micro-batch."""

    planned: PlannedRun
    traced: TracedModel
    shapes: ModelShapes

    @property
    def recipe(self) -> Recipe:
        """The recipe in one piece."""
        return self.planned.recipe

    @property
    def model(self) -> nn.Module:
        """The model without memory."""
        return self.planned.outline.model

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of what the model reads."""
        _, channels, height, width = self.planned.outline.images
        return channels, height, width

    @property
    def compute_dtype(self) -> torch.dtype:
        """The type in which the model computes on the device that the recipe names."""
        named: torch.dtype = getattr(torch, compute_type(self.recipe, self.recipe.precision))
        return named

    @property
    def normalises(self) -> bool:
        """Whether batch norm ties samples together."""
        return any(layer.buffers for layer in self.shapes.layers)

    @cached_property
    def trained(self) -> nn.Module:
        """The model with the layers of training."""
        outline = RunOutline(
            recipe=self.recipe,
            model=self.model,
            plan=None,
            images=(self.recipe.micro_batch_size, *self.image_shape),
        )
        return outline.as_trained().model

    @property
    def images(self) -> Tensor:
        """A micro-batch without values, as the model gets it."""
        shape = (self.recipe.micro_batch_size, *self.image_shape)
        images = empty_images(shape, memory_format=memory_format_of(self.trained), device="meta")
        return as_model_input(self.trained, images)

    @cached_property
    def memory(self) -> LayerMemory:
        """What each layer keeps for its backward pass."""
        traced = self.traced.on(self.trained)
        whole: StageModule = cut_model(traced, stage_of=[0] * len(traced.layers)).stages[0]
        try:
            device = pretended_device(self.recipe)
            return layer_memory(whole, self.images, compute_dtype=self.compute_dtype, device=device)
        # A user's layer may need real values; it may then raise anything.
        except Exception as error:
            raise BadInputError(
                f"The memory that --model needs cannot be predicted, so no layout can be searched: "
                f"{describe_failure(error)}"
            ) from error

    @cached_property
    def weights(self) -> WeightBytes:
        """The memory of the whole model's weights, gradients and optimiser states."""
        return weight_bytes(
            [self.trained], build_optimiser=partial(build_optimiser, self.recipe), offloads_states=False
        )

    @property
    def checkpoint_bytes(self) -> int:
        """The copy of the training state for checkpoints, which on a CPU is in the device's memory."""
        return checkpoint_bytes(self.recipe, [self.weights]) if is_cpu(self.recipe.device) else 0


def subject_of(resolved: ResolvedRecipe) -> Subject:
    """Builds and traces the model of a recipe; raises BadInputError if it cannot be split."""
    planned = look_into(replace(resolved, recipe=_in_one_piece(resolved.recipe)))
    images = planned.outline.images
    traced = trace_model(planned.outline.model, image_shape=images[1:])
    return Subject(planned=planned, traced=traced, shapes=find_shapes(traced, image_shape=images))


def _in_one_piece(recipe: Recipe) -> Recipe:
    """The recipe in one piece on one device, with the same batch per device."""
    changes = {"stages": None, "pipeline_splits": (), "device_mapping": (), "stage_options": ()}
    return recipe.model_copy(update={**changes, "recomputation": False})
