"""CIFAR's files in both forms, whole and broken."""

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivetrain.catalogue.data_sets import CIFAR10, CIFAR100
from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSplits
from drivetrain.data.sources.cifar import open_cifar
from drivetrain.data.splits import open_data
from drivetrain.recipe.schema import Recipe
from tests.data.sources.cifar_files import (
    pixels,
    write_binary10,
    write_binary100,
    write_pickle,
    write_python10,
    write_python100,
)

Write = Callable[[Path], Path]


def same_samples(first: DataSplits, second: DataSplits) -> bool:
    assert first.validation is not None
    assert second.validation is not None
    pairs = ((first.train, second.train), (first.validation, second.validation))
    for one, other in pairs:
        everything = np.arange(len(one))
        for part, counterpart in zip(one.fetch(everything), other.fetch(everything), strict=True):
            if not np.array_equal(part, counterpart):
                return False
    return True


def test_binary_form(tmp_path: Path) -> None:
    write_binary10(tmp_path)
    splits = open_cifar("cifar10", data_dir=str(tmp_path))
    assert splits.validation is not None
    assert (len(splits.train), len(splits.validation)) == (15, 3)
    images, found = splits.train.fetch(np.array([4, 0]))
    assert images.shape == (2, 32, 32, 3)
    assert images.dtype == np.uint8
    assert np.array_equal(images[0], pixels(1)[1].reshape(3, 32, 32).transpose(1, 2, 0))
    assert found.tolist() == [4, 0]
    assert splits.spec.class_names == CIFAR10
    (warning,) = splits.warnings
    assert "15 training and 3 validation samples" in warning
    assert "50000 and 10000" in warning


def test_three_samples_of_cifar10(tmp_path: Path) -> None:
    write_binary10(tmp_path)
    data = open_data(Recipe(dataset="cifar10", data_dir=str(tmp_path), limit_train_samples=3))
    images, _ = data.train.fetch(np.arange(3))
    assert (images.shape, data.spec.num_classes) == ((3, 32, 32, 3), 10)


@pytest.mark.parametrize(
    ("name", "binary", "python"),
    [("cifar10", write_binary10, write_python10), ("cifar100", write_binary100, write_python100)],
)
def test_both_forms_hold_the_same_samples_wherever_they_lie(
    tmp_path: Path, name: str, binary: Write, python: Write
) -> None:
    first, second = binary(tmp_path / "a"), python(tmp_path / "b")
    from_binary = open_cifar(name, data_dir=str(tmp_path / "a"))
    from_python = open_cifar(name, data_dir=str(tmp_path / "b"))
    assert same_samples(from_binary, from_python)
    for folder in (first, second):
        assert same_samples(open_cifar(name, data_dir=str(folder)), from_binary)
    other = "cifar10" if name == "cifar100" else "cifar100"
    with pytest.raises(BadInputError, match=f"does not contain.*data fetch {other}"):
        open_cifar(other, data_dir=str(tmp_path / "a"))


def test_class_names_come_from_the_meta_files_or_are_known(tmp_path: Path) -> None:
    write_python10(tmp_path)
    write_binary100(tmp_path)
    assert open_cifar("cifar10", data_dir=str(tmp_path)).spec.class_names[3] == "c3"
    assert open_cifar("cifar100", data_dir=str(tmp_path)).spec.class_names[99] == "fine99"
    (tmp_path / "cifar-100-binary" / "fine_label_names.txt").write_text("too few")
    assert open_cifar("cifar100", data_dir=str(tmp_path)).spec.class_names == CIFAR100


def test_only_cifar10_is_standardised(tmp_path: Path) -> None:
    write_python10(tmp_path)
    write_python100(tmp_path)
    assert open_cifar("cifar10", data_dir=str(tmp_path)).spec.normalisation == "standardise"
    assert open_cifar("cifar100", data_dir=str(tmp_path)).spec.normalisation == "unit"


def test_directory_must_be_given_and_be_there(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"--data-dir DIR.*cifar-10-batches-bin"):
        open_data(Recipe(dataset="cifar10"))
    with pytest.raises(BadInputError, match=r"--data-dir .*nowhere is not an existing folder"):
        open_data(Recipe(dataset="cifar100", data_dir=str(tmp_path / "nowhere")))
    with pytest.raises(BadInputError, match=r"--data-dir .* does not contain cifar-10-batches-bin"):
        open_data(Recipe(dataset="cifar10", data_dir=str(tmp_path)))


def test_missing_and_truncated_files_are_named(tmp_path: Path) -> None:
    place = write_binary10(tmp_path)
    content = (place / "data_batch_2.bin").read_bytes()
    (place / "data_batch_2.bin").write_bytes(content[:-1])
    with pytest.raises(BadInputError, match=r"data_batch_2.bin is truncated: its 9218 bytes"):
        open_cifar("cifar10", data_dir=str(tmp_path))
    (place / "data_batch_2.bin").unlink()
    with pytest.raises(BadInputError, match=r"lacks data_batch_2.bin; .*data fetch cifar10"):
        open_cifar("cifar10", data_dir=str(tmp_path))
    (place / "data_batch_2.bin").write_bytes(b"\x0a" + content[1:])
    with pytest.raises(BadInputError, match=r"data_batch_2.bin is corrupt: it contains the label 10"):
        open_cifar("cifar10", data_dir=str(tmp_path))


class Malicious:
    """Would make a file when it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.mark),)


def test_a_pickle_that_would_run_something_is_refused(tmp_path: Path) -> None:
    place = write_python10(tmp_path)
    mark = tmp_path / "ran"
    write_pickle(place / "data_batch_1", {b"data": Malicious(mark), b"labels": []})
    pickle.loads((place / "data_batch_1").read_bytes())
    assert mark.exists(), "the control: an ordinary unpickler runs it"
    mark.rmdir()
    with pytest.raises(BadInputError, match=r"data_batch_1 is corrupt \(it asks for posix.mkdir"):
        open_cifar("cifar10", data_dir=str(tmp_path))
    assert not mark.exists()


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({b"data": np.zeros((3, 3072)), b"labels": [0] * 3}, "array of 'f8' instead of bytes"),
        ({b"data": np.array([{}], dtype=object), b"labels": [0]}, "array of 'O8' instead of bytes"),
        ({b"data": pixels(0), b"labels": [0]}, "1 labels need"),
        ({b"data": pixels(0), b"labels": ["a"] * 3}, "list of whole numbers `labels`"),
        ({b"labels": [0]}, "lacks a byte array `data`"),
        ([1, 2], "a list instead of a dictionary"),
    ],
)
def test_pickles_of_something_else(tmp_path: Path, content: Any, said: str) -> None:
    place = write_python10(tmp_path)
    write_pickle(place / "test_batch", content)
    with pytest.raises(BadInputError, match=f"test_batch is corrupt.*{said}"):
        open_cifar("cifar10", data_dir=str(tmp_path))


@pytest.mark.parametrize("keep", [0, 10, 500])
def test_truncated_pickle(tmp_path: Path, keep: int) -> None:
    path = write_python10(tmp_path) / "test_batch"
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(BadInputError, match=r"test_batch is (truncated|corrupt)"):
        open_cifar("cifar10", data_dir=str(tmp_path))


def test_official_protocol_2_is_read(tmp_path: Path) -> None:
    """The official files were written by Python 2, whose strings are what bytes are now."""
    content = (
        b"\x80\x02}q\x01(U\x04dataq\x02cnumpy.core.multiarray\n_reconstruct\nq\x03cnumpy\nndarray\nq\x04K\x00\x85"
        b"U\x01b\x87Rq\x05(K\x01K\x01M\x00\x0c\x86cnumpy\ndtype\nq\x06U\x02u1K\x00K\x01\x87Rq\x07"
        b"(K\x03U\x01|NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xffK\x00tb\x89T\x00\x0c\x00\x00"
        + bytes(range(256)) * 12
        + b"tbU\x06labelsq\x08]q\x09K\x05au."
    )
    place = write_python10(tmp_path)
    (place / "test_batch").write_bytes(content)
    splits = open_cifar("cifar10", data_dir=str(tmp_path))
    assert splits.validation is not None
    images, found = splits.validation.fetch(np.array([0]))
    assert found.tolist() == [5]
    assert images[0, 0, :3, 0].tolist() == [0, 1, 2]
