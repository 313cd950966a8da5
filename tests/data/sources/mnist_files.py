"""Small files of MNIST's form."""

import gzip
from pathlib import Path

import numpy as np

TRAIN_IMAGES = "train-images-idx3-ubyte"
TRAIN_LABELS = "train-labels-idx1-ubyte"


def idx_bytes(values: np.ndarray) -> bytes:
    header = np.array([0x0800 + values.ndim, *values.shape], dtype=">u4")
    return header.tobytes() + values.astype(np.uint8).tobytes()


def pixels(samples: int) -> np.ndarray:
    return (np.arange(samples * 28 * 28) % 251).reshape(samples, 28, 28)


def write_mnist(folder: Path, *, compressed: bool = True) -> Path:
    files = {
        TRAIN_IMAGES: pixels(12),
        TRAIN_LABELS: np.arange(12) % 10,
        "t10k-images-idx3-ubyte": pixels(5),
        "t10k-labels-idx1-ubyte": np.arange(5),
    }
    for name, values in files.items():
        content = idx_bytes(values)
        path = folder / (f"{name}.gz" if compressed else name)
        path.write_bytes(gzip.compress(content) if compressed else content)
    return folder
