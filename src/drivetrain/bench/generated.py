"""Samples of noise in the shape that a recipe's model sees, for benchmarks without a data set."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.info import dataset_task
from drivetrain.data.source import DataSpec, DataSplits
from drivetrain.models.registry import model_task
from drivetrain.plan.inputs import planned_inputs
from drivetrain.recipe.load import ResolvedRecipe

__all__ = ["GeneratedSource", "generated_data", "generated_spec"]

_OFFSETS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedSource:
    """Sample i is a piece of one stretch of noise: making a batch costs about what copying it does."""

    spec: DataSpec
    samples: int
    label_channels: int = 1

    def __len__(self) -> int:
        return self.samples

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The samples at `indices`."""
        spec = self.spec
        shape = (spec.height, spec.width, spec.channels)
        images = np.empty((len(indices), *shape), dtype=np.uint8)
        noise = _noise(images[0].size if len(images) else 0)
        for image, index in zip(images, indices.tolist(), strict=True):
            first = index * 31 % _OFFSETS
            image[...] = noise[first : first + image.size].reshape(shape)
        if spec.task == "classification":
            return images, indices % spec.num_classes
        classes = images[..., :1] % np.uint8(spec.num_classes)
        return images, np.repeat(classes, self.label_channels, axis=-1)


@lru_cache(maxsize=2)
def _noise(values: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, values + _OFFSETS, dtype=np.uint8)


def generated_spec(resolved: ResolvedRecipe) -> DataSpec:
    """What a recipe's images are like once they have their final size, without opening any."""
    recipe = resolved.recipe.model_copy(update={"dataset_size": resolved.recipe.dataset_size or 1})
    shape = planned_inputs(recipe, origins=resolved.origins)
    is_dense = "segmentation" in (dataset_task(recipe.dataset), model_task(recipe.model))
    return DataSpec(
        channels=shape.channels,
        height=shape.image_size,
        width=shape.image_size,
        num_classes=shape.num_classes,
        class_names=tuple(map(str, range(shape.num_classes))),
        image_dtype="uint8",
        normalisation="symmetric" if is_dense else "unit",
        task="segmentation" if is_dense else "classification",
    )


def generated_data(resolved: ResolvedRecipe, *, samples: int) -> DataSplits:
    """Training samples in place of a recipe's own."""
    spec = generated_spec(resolved)
    label_channels = 2 if resolved.recipe.border_weight and spec.task == "segmentation" else 1
    source = GeneratedSource(spec=spec, samples=samples, label_channels=label_channels)
    return DataSplits(train=source, validation=None, test=None, spec=spec)
