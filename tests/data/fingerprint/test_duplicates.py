"""Copies inside and between splits: all in small data sets, a part in large ones, never too many opened."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from drivetrain.data.commands.write_pack import PackRequest, write_pack
from drivetrain.data.files.folder_files import FolderStore
from drivetrain.data.fingerprint.duplicates import find_copies, find_duplicates
from drivetrain.data.fingerprint.fingerprint import Duplicates
from drivetrain.data.fingerprint.looked_at import LookedAt, Samples, samples_of
from drivetrain.data.source import Source
from drivetrain.data.splits import open_data
from drivetrain.recipe.schema import Recipe
from tests.data.folders import write_images
from tests.data.mask_files import save

Split = tuple[Source, Samples]
MODULE = "drivetrain.data.fingerprint.duplicates"


def _splits(folder: Path, **options: Any) -> tuple[Split, Split | None]:
    recipe = Recipe(data_dir=str(folder), validation_fraction=0.0, **{"dataset": "image-folder"} | options)
    data = open_data(recipe)
    dense = data.spec.has_dense_labels
    train, validation = (
        None if part is None else (part, samples_of(part, has_dense_labels=dense))
        for part in (data.train, data.validation)
    )
    assert train is not None
    return train, validation


def _both(folder: Path) -> Duplicates:
    train, validation = _splits(folder)
    assert validation is not None
    return find_duplicates(train, validation)


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files whose bytes were read; an image that is decoded fails the test."""
    names: list[str] = []
    whole = FolderStore.read

    def noted(store: FolderStore, index: int) -> bytes:
        names.append(store.short_name(index))
        return whole(store, index)

    def decoded(*_: object) -> None:
        raise AssertionError("a file was decoded")

    monkeypatch.setattr(FolderStore, "read", noted)
    monkeypatch.setattr(FolderStore, "image", decoded)
    return names


def _bitmaps(folder: Path, count: int, *, seed: int) -> None:
    """Files of one length, as no compression makes them differ."""
    random = np.random.default_rng(seed)
    for index in range(count):
        path = folder / "ab"[index % 2] / f"{index:03}.bmp"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (4, 4, 3), dtype=np.uint8)).save(path)


def test_bytes_are_compared_of_equally_long_files_only(tmp_path: Path, read: list[str]) -> None:
    write_images(tmp_path / "train", {"a": 3, "b": 3}, sizes=((8, 8), (20, 20)))
    write_images(tmp_path / "val", {"a": 2, "b": 2}, sizes=((40, 40),), seed=1)
    assert _both(tmp_path) == Duplicates(count=0, first=())
    assert read == []
    shutil.copy(tmp_path / "train/b/000.png", tmp_path / "val/a/copy.png")
    found = _both(tmp_path)
    assert (found.count, found.compared, found.compared_with) == (1, None, None)
    assert {"b/000.png", "a/copy.png"} <= set(read) <= {"b/000.png", "b/002.png", "a/001.png", "a/copy.png"}


def test_no_more_files_are_read_than_allowed(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few validation images are compared with all training images, or else with a sample."""
    _bitmaps(tmp_path / "train", 40, seed=0)
    shutil.copytree(tmp_path / "train", tmp_path / "val")
    assert _both(tmp_path).count == 40
    monkeypatch.setattr(f"{MODULE}._FEWEST_COMPARED", 4)
    read.clear()
    monkeypatch.setattr(f"{MODULE}._MOST_READ", 50)
    found = _both(tmp_path)
    assert (found.count, found.compared, found.compared_with, len(read)) == (10, 10, None, 50)
    read.clear()
    monkeypatch.setattr(f"{MODULE}._MOST_READ", 30)
    found = _both(tmp_path)
    assert (found.count, found.compared, found.compared_with, len(read)) == (15, 15, 15, 30)


def test_copies_inside_the_training_images_are_counted(tmp_path: Path, read: list[str]) -> None:
    write_images(tmp_path, {"a": 4, "b": 4}, sizes=((30, 30), (50, 50)))
    (train, none) = _splits(tmp_path)
    assert none is None
    assert find_copies(train).count == 0
    shutil.copy(tmp_path / "a/001.png", tmp_path / "b/again.png")
    shutil.copy(tmp_path / "a/001.png", tmp_path / "b/once_more.png")
    found = find_copies(_splits(tmp_path)[0])
    assert (found.count, found.compared) == (3, None)
    assert [tuple(Path(name).name for name in pair) for pair in found.first] == [("001.png", "again.png")]


def test_copies_inside_many_training_images_are_counted_in_a_part(
    tmp_path: Path, read: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _bitmaps(tmp_path, 40, seed=0)
    for path in sorted(tmp_path.rglob("*.bmp")):
        shutil.copy(path, path.with_stem(f"{path.stem}_copy"))
    train, _ = _splits(tmp_path)
    assert find_copies(train).count == 80
    read.clear()
    monkeypatch.setattr(f"{MODULE}._MOST_READ", 30)
    found = find_copies(train)
    assert (found.compared, found.compared_with, len(read)) == (30, 30, 30)
    assert 0 < found.count <= 30


@pytest.mark.parametrize("image_size", [None, 8])
def test_copies_in_a_pack_are_found(tmp_path: Path, image_size: int | None) -> None:
    write_images(tmp_path / "src", {"a": 3, "b": 3}, sizes=((8, 8),))
    shutil.copy(tmp_path / "src" / "a" / "001.png", tmp_path / "src" / "b" / "again.png")
    write_pack(tmp_path / "src", tmp_path / "pack", request=PackRequest(image_size=image_size))
    found = find_copies(_splits(tmp_path / "pack", dataset="packed")[0])
    assert (found.count, len(found.first)) == (2, 1)


def test_files_that_cannot_be_read_have_no_copies(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 2, "b": 2})
    for name in ("a/empty.png", "b/empty.png"):
        (tmp_path / name).touch()
    train, _ = _splits(tmp_path, image_size=8, on_bad_sample="skip")
    assert find_copies(train).count == 0
    (tmp_path / "a" / "000.png").unlink()
    assert find_copies(train).count == 0


class _Counted:
    """Samples that remember which of them were decoded."""

    def __init__(self, samples: Samples) -> None:
        self._samples = samples
        self.opened: list[int] = []

    def __len__(self) -> int:
        return len(self._samples)

    def name(self, index: int) -> str:
        return self._samples.name(index)

    def open(self, index: int) -> LookedAt:
        self.opened.append(index)
        return self._samples.open(index)


def test_images_with_masks_are_decoded_but_not_too_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(0)
    for index in range(8):
        pixels = np.zeros((16, 16), np.uint8) if index in (2, 7) else random.integers(0, 256, (16, 16))
        save(tmp_path / "images" / f"{index}.png", pixels.astype(np.uint8))
        save(tmp_path / "masks" / f"{index}.png", np.eye(16, dtype=np.uint8))
    (source, samples), _ = _splits(tmp_path, dataset="mask-folder", model="unet_same")
    everything = _Counted(samples)
    found = find_copies((source, everything))
    assert (found.count, found.compared, everything.opened) == (2, None, [*range(8)])
    assert [tuple(Path(name).name for name in pair) for pair in found.first] == [("2.png", "7.png")]
    monkeypatch.setattr(f"{MODULE}._MOST_DECODED", 4)
    part = _Counted(samples)
    found = find_copies((source, part))
    assert (found.count, found.compared, found.compared_with, part.opened) == (0, 4, 4, [0, 1, 4, 5])
