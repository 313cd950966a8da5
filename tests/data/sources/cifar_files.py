"""Small files of CIFAR's forms."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np

PER_FILE = 3


def pixels(number: int) -> np.ndarray:
    """The samples of one file, as rows of planes; every file has its own."""
    return np.random.default_rng(number).integers(0, 256, (PER_FILE, 3072), dtype=np.uint8)


def labels(number: int, *, classes: int) -> list[int]:
    return [(number * PER_FILE + index) % classes for index in range(PER_FILE)]


def write_binary10(folder: Path) -> Path:
    place = folder / "cifar-10-batches-bin"
    place.mkdir(parents=True)
    for number, name in enumerate([f"data_batch_{index}" for index in range(1, 6)] + ["test_batch"]):
        column = np.array(labels(number, classes=10), dtype=np.uint8)[:, None]
        (place / f"{name}.bin").write_bytes(np.concatenate([column, pixels(number)], axis=1).tobytes())
    return place


def write_python10(folder: Path) -> Path:
    place = folder / "cifar-10-batches-py"
    place.mkdir(parents=True)
    for number, name in enumerate([f"data_batch_{index}" for index in range(1, 6)] + ["test_batch"]):
        write_pickle(place / name, {b"data": pixels(number), b"labels": labels(number, classes=10)})
    write_pickle(place / "batches.meta", {b"label_names": [b"c%d" % index for index in range(10)]})
    return place


def write_binary100(folder: Path) -> Path:
    place = folder / "cifar-100-binary"
    place.mkdir(parents=True)
    for number, name in enumerate(["train", "test"]):
        fine = np.array(labels(number, classes=100), dtype=np.uint8)[:, None]
        rows = np.concatenate([np.full_like(fine, 7), fine, pixels(number)], axis=1)
        (place / f"{name}.bin").write_bytes(rows.tobytes())
    (place / "fine_label_names.txt").write_text("\n".join(f"fine{index}" for index in range(100)))
    return place


def write_python100(folder: Path) -> Path:
    place = folder / "cifar-100-python"
    place.mkdir(parents=True)
    for number, name in enumerate(["train", "test"]):
        coarse = [7] * PER_FILE
        content = {b"data": pixels(number), b"fine_labels": labels(number, classes=100)}
        write_pickle(place / name, {**content, b"coarse_labels": coarse, b"batch_label": b"training"})
    return place


def write_pickle(path: Path, content: Any) -> None:
    # Protocol 4 describes arrays by the same three names as the official files of protocol 2 do.
    path.write_bytes(pickle.dumps(content, protocol=4))
