"""What the tests of images with masks share."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.source import DataSpec

Bytes = NDArray[np.uint8]


def dense_spec(height: int = 20, width: int = 24, *, classes: int = 2, **fields: Any) -> DataSpec:
    spec = DataSpec(
        channels=1,
        height=height,
        width=width,
        num_classes=classes,
        class_names=tuple(f"class {number}" for number in range(classes)),
        image_dtype="uint8",
        normalisation="symmetric",
        task="segmentation",
    )
    return replace(spec, **fields)


def stored_pairs(
    samples: int,
    height: int = 20,
    width: int = 24,
    *,
    classes: int = 2,
    codes: bool = False,
    channels: int = 1,
) -> tuple[Bytes, Bytes]:
    """Random images and masks of patches, as a source gives them."""
    generator = np.random.default_rng(8)
    images = generator.integers(0, 256, (samples, height, width, channels), dtype=np.uint8)
    patches = generator.integers(0, classes, (samples, -(-height // 3), -(-width // 3), 1), dtype=np.uint8)
    masks = patches.repeat(3, axis=1).repeat(3, axis=2)[:, :height, :width]
    if codes:
        masks = np.concatenate([masks, generator.integers(0, 256, masks.shape, dtype=np.uint8)], axis=-1)
    return images, np.ascontiguousarray(masks)
