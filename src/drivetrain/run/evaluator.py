"""How a run measures its model on a source: at each validation, at its end, and when asked later."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from torch import nn

from drivetrain.cluster.devices import Device
from drivetrain.data.feed import EvaluationFeed, MicroBatch, fits_on_device
from drivetrain.data.preprocess import Preparation
from drivetrain.data.source import Source
from drivetrain.data.tile_source import masked_of
from drivetrain.data.whole_images import WholeImageFeed
from drivetrain.models.registry import output_margin_of
from drivetrain.program.evaluation import evaluate_model
from drivetrain.program.forward import Forward, choose_precision, in_precision
from drivetrain.program.tiles import FlipAveraged
from drivetrain.program.whole_images import whole_image_forward
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.build import build_measure
from drivetrain.tasks.task import Evaluation

__all__ = ["Evaluator", "build_evaluator", "validation_batch_size"]

_VALIDATION_PIXELS = {"classification": 8 * 1024 * 1024, "segmentation": 5 * 512 * 1024}
_LARGEST_VALIDATION_BATCH = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """A model, the samples it is measured on, and the way it takes over them."""

    recipe: Recipe
    model: nn.Module
    feed: Iterable[MicroBatch]
    forward: Forward
    preprocess: Preparation
    device: Device

    def __call__(self, *, regions: bool = False, on_batch: Callable[[int], None] | None = None) -> Evaluation:
        """Measures the model as it is now; `regions` also scores objects, which takes the host a while."""
        measure = build_measure(
            self.recipe, self.preprocess.spec, wide_dtype=self.device.wide_dtype, regions=regions
        )
        return evaluate_model(self.model, self.feed, measure=measure, forward=self.forward, on_batch=on_batch)


def build_evaluator(
    recipe: Recipe,
    *,
    model: nn.Module,
    source: Source,
    preprocess: Preparation,
    device: Device,
    flips: bool | None = None,
    overlap: float | None = None,
) -> Evaluator:
    """Images of one size go through the model in batches; those cut into tiles go whole, one by one."""
    spec = preprocess.spec
    flips = recipe.flip_averaging if flips is None else flips
    feed: Iterable[MicroBatch]
    forward = in_precision(model, choose_precision(recipe, device))
    if spec.tile is not None:
        feed = WholeImageFeed(masked_of(source), spec=spec, device=device.torch_device)
        forward = whole_image_forward(
            recipe,
            spec,
            forward,
            margin=output_margin_of(recipe.model),
            flips=flips,
            **({} if overlap is None else {"overlap": overlap}),
        )
    else:
        feed = _batched(recipe, source=source, preprocess=preprocess, device=device)
        forward = FlipAveraged(forward) if flips else forward
    return Evaluator(
        recipe=recipe, model=model, feed=feed, forward=forward, preprocess=preprocess, device=device
    )


def validation_batch_size(recipe: Recipe, preprocess: Preparation) -> int:
    """As many images as fill a comfortable number of pixels, unless the recipe says."""
    if recipe.validation_micro_batch_size is not None:
        return recipe.validation_micro_batch_size
    pixels = preprocess.channels * preprocess.height * preprocess.width
    return max(1, min(_LARGEST_VALIDATION_BATCH, _VALIDATION_PIXELS[preprocess.spec.task] // pixels))


def _batched(recipe: Recipe, *, source: Source, preprocess: Preparation, device: Device) -> EvaluationFeed:
    """Every sample of a source once, in batches this device runs well."""
    return EvaluationFeed(
        source,
        preprocess=preprocess,
        batch_size=validation_batch_size(recipe, preprocess),
        device=device.torch_device,
        resident=recipe.data_placement != "stream"
        and fits_on_device(source, preprocess=preprocess, memory_budget_bytes=device.free_memory_bytes),
        num_workers=recipe.num_workers or 0,
    )
