"""Noise in the shape of a recipe's samples, for benchmarks without a data set."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.models import named_task
from drivetrain.catalogue.tasks import DEFAULT_TASK, task_info
from drivetrain.data.normalisation import with_normalisation
from drivetrain.data.source import DataSpec, DataSplits, Source
from drivetrain.data.training_tiles import UniformSource
from drivetrain.plan.inputs import planned_inputs
from drivetrain.recipe.load import ResolvedRecipe

__all__ = ["GeneratedMasks", "GeneratedSource", "generated_data", "generated_spec", "noise_images"]

# The number of different images. Each starts at its own offset in one shared block of noise.
_OFFSETS = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedSource:
    """Classification samples cut from one shared block of noise: making a batch costs no more than a copy."""

    spec: DataSpec
    samples: int

    def __len__(self) -> int:
        return self.samples

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        """The samples at `indices`."""
        return noise_images(self.spec, indices), indices % self.spec.num_classes


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedMasks:
    """Segmentation samples: noise with a class for each pixel."""

    spec: DataSpec
    samples: int
    label_channels: int = 1

    def __len__(self) -> int:
        return self.samples

    def name(self, index: int) -> str:
        """The name of an image in messages."""
        return f"noise {index}"

    def size(self, index: int) -> tuple[int, int]:  # noqa: ARG002
        """Height and width, the same for all images."""
        return self.spec.height, self.spec.width

    def whole(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The image and its mask."""
        image = _noise_image(self.spec, index)
        classes = image[..., :1] % np.uint8(self.spec.num_classes)
        return image, np.repeat(classes, self.label_channels, axis=-1)


def noise_images(spec: DataSpec, indices: NDArray[np.int64]) -> NDArray[Any]:
    """Noise images (samples, height, width, channels) in the shape and type of a data set."""
    images = np.stack([_noise_image(spec, index) for index in indices.tolist()])
    return images if spec.image_dtype == "uint8" else images.astype(np.float32) / np.float32(255)


def _noise_image(spec: DataSpec, index: int) -> NDArray[np.uint8]:
    """One image, as a view of the shared noise: callers must not write to it."""
    shape = (spec.height, spec.width, spec.channels)
    values = spec.height * spec.width * spec.channels
    first = index * 31 % _OFFSETS
    return _noise(values)[first : first + values].reshape(shape)


@lru_cache(maxsize=2)
def _noise(values: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, values + _OFFSETS, dtype=np.uint8)


def generated_spec(resolved: ResolvedRecipe) -> DataSpec:
    """The shape, classes and task of a recipe's images at their final size, without opening any file."""
    recipe = resolved.recipe.model_copy(update={"dataset_size": resolved.recipe.dataset_size or 1})
    shape = planned_inputs(recipe, origins=resolved.origins)
    task = named_task(dataset=recipe.dataset, model=recipe.model) or DEFAULT_TASK
    spec = DataSpec(
        channels=shape.channels,
        height=shape.image_size if shape.input_kind == "image" else 1,
        width=shape.image_size,
        num_classes=shape.num_classes,
        class_names=tuple(map(str, range(shape.num_classes))),
        image_dtype="uint8" if shape.input_kind == "image" else "float32",
        input_kind=shape.input_kind,
        normalisation="symmetric" if task_info(task).has_dense_labels else "unit",
        task=task,
    )
    return with_normalisation(spec, recipe)


def generated_data(resolved: ResolvedRecipe, *, samples: int) -> DataSplits:
    """Generated training samples in place of the recipe's data."""
    spec = generated_spec(resolved)
    source: Source = GeneratedSource(spec=spec, samples=samples)
    if spec.has_dense_labels:
        label_channels = 2 if resolved.recipe.border_weight else 1
        source = UniformSource(GeneratedMasks(spec=spec, samples=samples, label_channels=label_channels))
    return DataSplits(train=source, validation=None, test=None, spec=spec)
