"""MNIST's files, whole and broken."""

import gzip
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.sources.mnist import open_mnist
from tests.data.sources.mnist_files import TRAIN_IMAGES, TRAIN_LABELS, idx_bytes, pixels, write_mnist


@pytest.mark.parametrize("compressed", [True, False])
def test_reads_plain_and_compressed_files(tmp_path: Path, compressed: bool) -> None:
    splits = open_mnist(str(write_mnist(tmp_path, compressed=compressed)))
    images, labels = splits.train.fetch(np.array([11, 0]))
    assert images.shape == (2, 28, 28, 1)
    assert images.dtype == np.uint8
    assert np.array_equal(images[0, :, :, 0], pixels(12)[11])
    assert labels.tolist() == [1, 0]
    assert splits.validation is not None
    assert len(splits.validation) == 5


def test_fewer_samples_than_the_whole_set_are_said(tmp_path: Path) -> None:
    (warning,) = open_mnist(str(write_mnist(tmp_path))).warnings
    assert "12 training and 5 validation samples" in warning
    assert "60000 and 10000" in warning


def test_directory_must_be_given_and_be_there(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"--data-dir DIR.*train-images-idx3-ubyte.gz"):
        open_mnist(None)
    with pytest.raises(
        BadInputError, match=r"--data-dir .*nowhere is not an existing folder.*t10k-labels-idx1-ubyte.gz"
    ):
        open_mnist(str(tmp_path / "nowhere"))


def test_missing_file_is_named(tmp_path: Path) -> None:
    (write_mnist(tmp_path) / f"{TRAIN_LABELS}.gz").unlink()
    with pytest.raises(
        BadInputError, match=rf"--data-dir .* contains neither {TRAIN_LABELS}.gz nor {TRAIN_LABELS}"
    ):
        open_mnist(str(tmp_path))


def _cut_gzip(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def _cut_content(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes())[:-3]))


def _only_header(path: Path) -> None:
    path.write_bytes(gzip.compress(b"\0\0\x08"))


def _empty(path: Path) -> None:
    path.write_bytes(b"")


def _append(path: Path) -> None:
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()) + b"x"))


def _flip_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(bytes(content))


def _not_gzip(path: Path) -> None:
    path.write_bytes(b"<html>not found</html>")


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (_cut_gzip, "truncated"),
        (_cut_content, "truncated"),
        (_only_header, "truncated"),
        (_empty, "truncated"),
        (_append, "corrupt"),
        (_flip_byte, "corrupt"),
        (_not_gzip, "corrupt"),
    ],
)
@pytest.mark.parametrize("name", [TRAIN_IMAGES, TRAIN_LABELS])
def test_damaged_file_is_named(tmp_path: Path, name: str, damage: Callable[[Path], None], said: str) -> None:
    damage(write_mnist(tmp_path) / f"{name}.gz")
    with pytest.raises(BadInputError, match=rf"{name}.gz is {said}.*--data-dir DIR"):
        open_mnist(str(tmp_path))


@pytest.mark.parametrize(
    ("name", "values", "said"),
    [
        (TRAIN_IMAGES, np.zeros(12), "not an idx file of 3 dimensions"),
        (TRAIN_IMAGES, np.zeros((12, 8, 8)), "8x8 pixels instead of 28x28"),
        (TRAIN_IMAGES, np.zeros((11, 28, 28)), "11 images, but .* 12 labels"),
        (TRAIN_LABELS, np.full(12, 10), "label 10 instead of 0 to 9"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, name: str, values: np.ndarray, said: str) -> None:
    (write_mnist(tmp_path) / f"{name}.gz").write_bytes(gzip.compress(idx_bytes(values)))
    with pytest.raises(BadInputError, match=said):
        open_mnist(str(tmp_path))
