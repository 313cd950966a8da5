"""A part of CIFAR-10 as lossless picture sheets, for a machine to which the whole cannot be brought.

    drivetrain train --config cifar_resnet20_paper --dataset benchmarks.cifar10_sheets:load --data-dir DIR ...

DIR holds train-00000.webp, ..., test-00000.webp, ... (1000 images each, 20 rows of 50) and
train-labels.npy, test-labels.npy. Preprocessing is that of `cifar10`.
"""

from pathlib import Path

import numpy as np
from PIL import Image

from drivetrain.data.source import ArraySource, DataSpec, DataSplits

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def load(data_dir: str) -> DataSplits:
    """Training and test samples of the sheets in a folder."""
    spec = DataSpec(
        channels=3,
        height=32,
        width=32,
        num_classes=10,
        class_names=CLASSES,
        image_dtype="uint8",
        normalisation="standardise",
    )
    folder = Path(data_dir)
    return DataSplits(train=_read(folder, "train"), validation=_read(folder, "test"), test=None, spec=spec)


def _read(folder: Path, split: str) -> ArraySource:
    labels = np.load(folder / f"{split}-labels.npy").astype(np.int64)
    sheets = [np.asarray(Image.open(path)) for path in sorted(folder.glob(f"{split}-*.webp"))]
    images = np.concatenate([_cut(sheet) for sheet in sheets])
    return ArraySource(images=images, labels=labels)


def _cut(
    sheet: "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]",
) -> "np.ndarray[tuple[int, ...], np.dtype[np.uint8]]":
    return sheet.reshape(20, 32, 50, 32, 3).transpose(0, 2, 1, 3, 4).reshape(1000, 32, 32, 3)
