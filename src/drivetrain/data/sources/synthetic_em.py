"""`--dataset synthetic-em`: generated electron micrographs of nerve tissue, with the membranes as mask."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.data_sets import dataset_info, generated_validation_samples
from drivetrain.core.errors import BadInputError
from drivetrain.core.randomness import stream_key
from drivetrain.data.masks.masked_splits import MaskedSplits
from drivetrain.data.source import DataSpec
from drivetrain.data.sources.synthetic_cells import lay_out_cells
from drivetrain.data.sources.synthetic_paint import paint_cells

_MASK_VALUES = ((0,), (255,))
_SMALLEST_SIZE = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticMicrographs:
    """Image i is a pure function of (seed, split, i, image size); class 0 is membrane, class 1 cell."""

    seed: int
    split: str
    samples: int
    image_size: int

    def __len__(self) -> int:
        return self.samples

    def name(self, index: int) -> str:
        """What a message calls the image."""
        return f"synthetic-em {self.split} {index}"

    def size(self, index: int) -> tuple[int, int]:
        """Height and width, the same for all."""
        self._require(index)
        return self.image_size, self.image_size

    def whole(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """The image and its mask, made on the spot."""
        self._require(index)
        key = stream_key(self.seed, "synthetic-em", self.split, index)
        cells = lay_out_cells(key, size=self.image_size)
        image = np.rint(paint_cells(cells, seed=key)).astype(np.uint8)
        mask = (~cells.is_membrane).astype(np.uint8)
        return image[..., np.newaxis], mask[..., np.newaxis]

    def _require(self, index: int) -> None:
        if not 0 <= index < self.samples:
            raise IndexError(index)


def open_synthetic_em(
    *,
    seed: int,
    dataset_size: int | None = None,
    image_size: int | None = None,
    channels: int | None = None,
    num_classes: int | None = None,
) -> MaskedSplits:
    """The generated micrographs in the number and size a recipe asks for."""
    info = dataset_info("synthetic-em")
    size = image_size or info.height
    _require_shape(size=size, channels=channels, num_classes=num_classes)
    train = dataset_size or info.train_samples
    counts = {"train": train, "validation": generated_validation_samples(train)}
    sources = {
        split: SyntheticMicrographs(seed=seed, split=split, samples=samples, image_size=size)
        for split, samples in counts.items()
    }
    spec = DataSpec(
        channels=info.channels,
        height=size,
        width=size,
        num_classes=info.num_classes,
        class_names=info.class_names,
        image_dtype="uint8",
        normalisation="symmetric",
        task="segmentation",
        mask_values=_MASK_VALUES,
    )
    return MaskedSplits(train=sources["train"], validation=sources["validation"], test=None, spec=spec)


def _require_shape(*, size: int, channels: int | None, num_classes: int | None) -> None:
    info = dataset_info("synthetic-em")
    if size < _SMALLEST_SIZE:
        raise BadInputError(
            f"--image-size {size} is too small for the cells of --dataset synthetic-em; "
            f"--image-size {info.height} works."
        )
    for option, asked, there in (
        ("--channels", channels, info.channels),
        ("--num-classes", num_classes, info.num_classes),
    ):
        if asked is not None and asked != there:
            raise BadInputError(
                f"{option} {asked} does not fit --dataset synthetic-em, which has {there}; leave it out or "
                f"use {option} {there}."
            )
