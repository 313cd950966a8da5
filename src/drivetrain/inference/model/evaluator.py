"""Evaluates a model on a set of samples: at each validation, at the end of a run, and in `evaluate`."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from drivetrain.catalogue.models import output_margin_of
from drivetrain.catalogue.tasks import task_info
from drivetrain.core.errors import BadInputError
from drivetrain.data.feeds.evaluation_feed import WholeImageFeed
from drivetrain.data.feeds.feed import EvaluationFeed, MicroBatch, fits_on_device
from drivetrain.data.preprocess import Preparation
from drivetrain.data.source import DataSpec, Source, SubsetSource
from drivetrain.data.training_tiles import masked_of
from drivetrain.devices.device import Device
from drivetrain.inference.model.tiles import DEFAULT_OVERLAP
from drivetrain.inference.model.whole_images import flip_averaged, whole_image_forward
from drivetrain.passes.forward import Forward, choose_precision, in_precision
from drivetrain.ranks.replica_group import ALL_ALONE, ALONE, RankGroups, ReplicaGroup
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.from_recipe import build_measure
from drivetrain.tasks.task import Evaluation, Measure

__all__ = ["Evaluator", "build_evaluator", "evaluate_model", "validation_batch_size"]

# An upper limit for tiny images, for which the task's `validation_pixels` alone would allow huge batches.
_LARGEST_VALIDATION_BATCH = 512


@torch.inference_mode()
def evaluate_model(
    model: nn.Module,
    batches: Iterable[MicroBatch],
    *,
    measure: Measure,
    group: ReplicaGroup = ALONE,
    forward: Callable[[Tensor], Tensor],
    counts: bool = True,
    on_batch: Callable[[int], None] | None = None,
) -> Evaluation:
    """The result of `measure` over all batches, including those of the other ranks in `group`.

    Every sample counts once, whatever the batches. `forward` runs the model; with `counts=False`, this rank
    only takes part in it, because the logits arrive on another rank.
    """
    model.eval()
    samples = 0
    for batch in batches:
        logits = forward(batch.images)
        if counts:
            measure.add(logits, batch.labels)
        samples += len(batch.labels)
        if on_batch is not None:
            on_batch(samples)
    if group.size > 1:
        measure.take(group.gather(measure.state()))
    return measure.result()


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluator:
    """A model, the feed of `samples` samples to evaluate it on, and the forward function to run."""

    recipe: Recipe
    model: nn.Module
    feed: Iterable[MicroBatch]
    forward: Forward
    preprocess: Preparation
    device: Device
    samples: int
    group: ReplicaGroup = ALONE
    counts: bool = True

    def __call__(self, *, regions: bool = False, on_batch: Callable[[int], None] | None = None) -> Evaluation:
        """Evaluates the model as it is now; `regions` also scores whole objects, which is slow on the CPU."""
        measure = build_measure(
            self.recipe, self.preprocess.spec, wide_dtype=self.device.wide_dtype, regions=regions
        )
        return evaluate_model(
            self.model,
            self.feed,
            measure=measure,
            forward=self.forward,
            group=self.group,
            counts=self.counts,
            on_batch=on_batch,
        )


def build_evaluator(
    recipe: Recipe,
    *,
    model: nn.Module,
    source: Source,
    preprocess: Preparation,
    device: Device,
    flips: bool | None = None,
    overlap: float | None = None,
    groups: RankGroups = ALL_ALONE,
    forward: Forward | None = None,
    counts: bool = True,
) -> Evaluator:
    """An evaluator that runs images of the training size in batches, and others whole, in tiles.

    `forward` is given if the model runs over several ranks; `counts` is whether its logits arrive here.
    """
    spec = preprocess.spec
    flips = recipe.flip_averaging if flips is None else flips
    feed: Iterable[MicroBatch]
    forward = forward or in_precision(model, choose_precision(recipe, device))
    replicas = groups.replicas
    share = _own_share(source, group=replicas, replicas=recipe.validation_replicas or replicas.size)
    if _goes_by_tiles(recipe, source, spec):
        feed = WholeImageFeed(masked_of(share), spec=spec, device=device.torch_device) if len(share) else ()
        forward = whole_image_forward(
            recipe,
            spec,
            forward,
            margin=output_margin_of(recipe.model),
            flips=flips,
            overlap=DEFAULT_OVERLAP if overlap is None else overlap,
        )
    else:
        _refuse_overlap(recipe, overlap)
        feed = _batched(recipe, source=share, preprocess=preprocess, device=device) if len(share) else ()
        forward = flip_averaged(recipe, spec, forward) if flips else forward
    return Evaluator(
        recipe=recipe,
        model=model,
        feed=feed,
        forward=forward,
        preprocess=preprocess,
        device=device,
        samples=len(share),
        group=groups.world,
        counts=counts,
    )


def _own_share(source: Source, *, group: ReplicaGroup, replicas: int) -> Source:
    """The contiguous part of the samples that this replica evaluates; together the parts cover all."""
    if group.size == 1:
        return source
    first, stop = (min(group.rank + more, replicas) * len(source) // replicas for more in (0, 1))
    return SubsetSource(source, np.arange(first, stop, dtype=np.int64))


def validation_batch_size(recipe: Recipe, preprocess: Preparation) -> int:
    """The recipe's validation batch size, or as many images as reach the task's number of pixels."""
    if recipe.validation_micro_batch_size is not None:
        return recipe.validation_micro_batch_size
    pixels = preprocess.channels * preprocess.height * preprocess.width
    return max(1, min(_LARGEST_VALIDATION_BATCH, task_info(preprocess.spec.task).validation_pixels // pixels))


def _goes_by_tiles(recipe: Recipe, source: Source, spec: DataSpec) -> bool:
    if not spec.has_dense_labels or recipe.image_size is not None:
        return False
    if spec.tile is not None:
        return True
    masked = masked_of(source)
    return any(masked.size(index) != (spec.height, spec.width) for index in range(len(masked)))


def _refuse_overlap(recipe: Recipe, overlap: float | None) -> None:
    if overlap is not None and recipe.image_size is not None:
        raise BadInputError(
            f"--tile-overlap has no effect: RUN was trained with --image-size {recipe.image_size}, so it is "
            f"evaluated on images scaled to that size, not on tiles; leave it out."
        )


def _batched(recipe: Recipe, *, source: Source, preprocess: Preparation, device: Device) -> EvaluationFeed:
    """A feed with every sample of a source once, in batches that suit the device."""
    return EvaluationFeed(
        source,
        preprocess=preprocess,
        batch_size=validation_batch_size(recipe, preprocess),
        device=device.torch_device,
        resident=recipe.data_placement != "stream"
        and fits_on_device(source, preprocess=preprocess, memory_budget_bytes=device.free_memory_bytes),
        num_workers=recipe.num_workers or 0,
    )
