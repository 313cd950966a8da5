"""The few samples that a verification uses: the first of the recipe's data, or generated ones instead."""

from dataclasses import replace
from math import ceil

import numpy as np

from drivetrain.catalogue.data_sets import dataset_info, is_external_dataset
from drivetrain.catalogue.models import named_task
from drivetrain.catalogue.tasks import DEFAULT_TASK, task_info
from drivetrain.core.errors import BadInputError
from drivetrain.data.augment.chain import augments_at_decode
from drivetrain.data.bad_samples import without_bad
from drivetrain.data.masks.masked_images import HeldMaskedImages, MaskedSplits
from drivetrain.data.normalisation import normalised_as_asked
from drivetrain.data.segmentation_splits import as_samples
from drivetrain.data.source import ArraySource, DataSplits, Source, SubsetSource, input_kind_of
from drivetrain.data.sources.synthetic import open_synthetic
from drivetrain.data.splits import open_data
from drivetrain.data.training_tiles import UniformSource, masked_of
from drivetrain.plan.inputs import planned_inputs
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.messages import COMMAND_LINE
from drivetrain.recipe.schema import Recipe

__all__ = ["few_samples", "open_samples"]

# Not a whole number, so that the epoch ends in an incomplete batch and --remainder is exercised too.
_BATCHES = 4.5
_LIMIT_WARNING = "--limit-train-samples"


def open_samples(resolved: ResolvedRecipe, *, global_batch: int) -> tuple[DataSplits, str]:
    """A few samples for a recipe, and a description of where they come from."""
    recipe = _recipe_of_few(resolved.recipe, limit=_count(global_batch))
    try:
        splits = open_data(recipe)
    except BadInputError as error:
        if not _may_stand_in(resolved):
            raise
        generated = _stand_in(resolved, samples=_count(global_batch))
        return generated, f"data generated in the shape of {recipe.dataset}, which cannot be opened ({error})"
    said = [text for text in splits.warnings if not text.startswith(_LIMIT_WARNING)]
    return few_samples(replace(splits, warnings=said), global_batch=global_batch), recipe.dataset


def few_samples(splits: DataSplits, *, global_batch: int) -> DataSplits:
    """Only the first training samples, few enough to be sent to other processes."""
    source = without_bad(splits.train)
    indices = np.arange(min(len(source), _count(global_batch)), dtype=np.int64)
    return DataSplits(
        train=_held(SubsetSource(source, indices), is_masked=splits.spec.has_dense_labels),
        validation=None,
        test=None,
        spec=splits.spec,
        warnings=splits.warnings,
    )


def _count(global_batch: int) -> int:
    return ceil(_BATCHES * global_batch)


def _recipe_of_few(recipe: Recipe, *, limit: int) -> Recipe:
    changes = {
        "folds": None,
        "fold": None,
        "limit_train_samples": min(recipe.limit_train_samples or limit, limit),
        "limit_validation_samples": None,
    }
    return recipe.model_copy(update=changes)


def _held(source: SubsetSource, *, is_masked: bool) -> Source:
    """The samples in memory; a source that augments while decoding stays as it is."""
    if augments_at_decode(source):
        return source
    if not is_masked:
        images, labels = source.fetch(np.arange(len(source), dtype=np.int64))
        return ArraySource(images=images, labels=labels, input_kind=input_kind_of(source))
    masked = masked_of(source)
    images, masks = zip(*(masked.whole(index) for index in range(len(masked))), strict=True)
    names = tuple(masked.name(index) for index in range(len(masked)))
    return UniformSource(HeldMaskedImages(images=np.stack(images), masks=np.stack(masks), names=names))


def _may_stand_in(resolved: ResolvedRecipe) -> bool:
    """Whether generated samples may replace missing files: not if the user named the folder."""
    dataset = resolved.recipe.dataset
    if is_external_dataset(dataset) or resolved.origins.get("data_dir") == COMMAND_LINE:
        return False
    return dataset_info(dataset).needs_files


def _stand_in(resolved: ResolvedRecipe, *, samples: int) -> DataSplits:
    recipe = _recipe_of_few(resolved.recipe, limit=samples)
    recipe = recipe.model_copy(
        update={"dataset_size": samples, "validation_fraction": None, "ignore_class": ()}
    )
    shape = planned_inputs(recipe, origins=resolved.origins)
    generated = open_synthetic(
        seed=recipe.seed,
        dataset_size=samples,
        channels=shape.channels,
        image_size=shape.image_size,
        num_classes=shape.num_classes,
    )
    task = named_task(dataset=recipe.dataset, model=recipe.model) or DEFAULT_TASK
    if task_info(task).has_dense_labels:
        generated = _with_masks(generated, recipe=recipe)
    normalised = normalised_as_asked(generated, recipe)
    return few_samples(normalised, global_batch=ceil(samples / _BATCHES))


def _with_masks(splits: DataSplits, *, recipe: Recipe) -> DataSplits:
    """The same images with masks: the grey level of the first channel determines the class of a pixel."""
    images, _ = splits.train.fetch(np.arange(len(splits.train), dtype=np.int64))
    classes = splits.spec.num_classes
    masks = (images[..., :1].astype(np.int64) * classes // 256).astype(np.uint8)
    names = tuple(f"generated {index}" for index in range(len(images)))
    masked = MaskedSplits(
        train=HeldMaskedImages(images=images, masks=masks, names=names),
        validation=None,
        test=None,
        spec=replace(splits.spec, task="segmentation", normalisation="symmetric"),
    )
    return as_samples(masked, recipe=recipe)
