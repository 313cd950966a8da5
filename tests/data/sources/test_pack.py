"""Packs, against the folders they were made of."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.commands.write_pack import PackRequest, PackResult, write_pack
from drivetrain.data.files.decode import BadSampleError
from drivetrain.data.source import DataSplits
from drivetrain.data.sources.pack import damaged_files
from drivetrain.data.splits import open_data
from drivetrain.recipe.schema import Recipe
from tests.data.folders import truncate, write_images


def opened(folder: Path, **fields: Any) -> DataSplits:
    return open_data(Recipe(**{"dataset": "image-folder", "data_dir": str(folder), **fields}))


def packed(source: Path, destination: Path, **request: Any) -> PackResult:
    return write_pack(source, destination, request=PackRequest(**request))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_images(tmp_path / "src" / "train", {"a": 6, "b": 5}, sizes=((20, 30), (40, 25)))
    write_images(tmp_path / "src" / "val", {"b": 2}, sizes=((20, 30),), seed=1)
    return tmp_path / "src"


def assert_same(first: DataSplits, second: DataSplits) -> None:
    assert first.spec == second.spec
    for one, other in ((first.train, second.train), (first.validation, second.validation)):
        assert one is not None
        assert other is not None
        for part, counterpart in zip(
            one.fetch(np.arange(len(one))), other.fetch(np.arange(len(other))), strict=True
        ):
            assert np.array_equal(part, counterpart)


@pytest.mark.parametrize("shard_bytes", [1, 5000, 10**9])
def test_a_pack_holds_the_same_samples(folder: Path, tmp_path: Path, shard_bytes: int) -> None:
    result = packed(folder, tmp_path / "pack", shard_bytes=shard_bytes)
    assert result.samples == {"train": 11, "validation": 2}
    shards = len(list((tmp_path / "pack").glob("train-*.bin")))
    assert shards == {1: 11, 5000: shards, 10**9: 1}[shard_bytes]
    for dataset in ("packed", "image-folder"):
        for fields in ({"image_size": 16}, {"image_size": 16, "channels": 1}, {}):
            assert_same(opened(tmp_path / "pack", dataset=dataset, **fields), opened(folder, **fields))
    assert damaged_files(tmp_path / "pack") == []


def test_random_crops_are_the_same(folder: Path, tmp_path: Path) -> None:
    packed(folder, tmp_path / "pack")
    fields = {"image_size": 16, "random_resized_crop": 0.3}
    first, second = opened(folder, **fields).train, opened(tmp_path / "pack", **fields).train
    second = pickle.loads(pickle.dumps(second))
    passes = np.full(11, 3)
    crops = [source.fetch_augmented(np.arange(11), passes)[0] for source in (first, second)]  # type: ignore[union-attr]
    assert np.array_equal(*crops)


@pytest.mark.parametrize("channels", [1, 3])
def test_decoded_images(folder: Path, tmp_path: Path, channels: int) -> None:
    packed(folder, tmp_path / "pack", image_size=16, channels=channels)
    assert_same(
        opened(tmp_path / "pack", dataset="packed", channels=channels),
        opened(folder, image_size=16, channels=channels),
    )


def test_a_bad_image_stops_the_packing_and_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    truncate(folder / "train" / "a" / "003.png")
    with pytest.raises(BadSampleError, match=r"a/003.png"):
        packed(folder, tmp_path / "pack")
    assert [path.name for path in tmp_path.iterdir()] == ["src"]


def test_a_bad_image_keeps_its_place(folder: Path, tmp_path: Path) -> None:
    truncate(folder / "train" / "a" / "003.png")
    result = packed(folder, tmp_path / "pack", skip_bad=True)
    assert [(bad.split, bad.index) for bad in result.bad_samples] == [("train", 3)]
    fields = {"image_size": 16, "on_bad_sample": "skip"}
    first, second = opened(folder, **fields), opened(tmp_path / "pack", **fields)
    assert_same(first, second)
    assert [bad.index for bad in second.bad_samples] == [bad.index for bad in first.bad_samples] == [3]
    with pytest.raises(BadInputError, match=r"pack:a/003.png cannot be read"):
        opened(tmp_path / "pack", image_size=16)


def test_places_that_will_not_do(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"SRC .*nowhere is not an existing folder"):
        packed(tmp_path / "nowhere", tmp_path / "pack")
    with pytest.raises(BadInputError, match=r"DEST .*src already exists"):
        packed(folder, folder)
    with pytest.raises(BadInputError, match=r"does not contain pack.json"):
        opened(folder, dataset="packed")


def test_damage_is_found(folder: Path, tmp_path: Path) -> None:
    pack = tmp_path / "pack"
    packed(folder, pack)
    shard = pack / "train-00000.bin"
    content = shard.read_bytes()
    shard.write_bytes(content[:-1])
    with pytest.raises(BadInputError, match=r"train-00000.bin is damaged: it has"):
        opened(pack)
    shard.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    opened(pack, image_size=8)
    assert damaged_files(pack) == ["train-00000.bin"]
    shard.unlink()
    with pytest.raises(BadInputError, match=r"lacks train-00000.bin"):
        opened(pack)
    shard.write_bytes(content)
    table = pack / "train.npz"
    table.write_bytes(table.read_bytes() + b"x")
    with pytest.raises(BadInputError, match=r"train.npz is damaged"):
        opened(pack)
    (pack / "pack.json").write_text('{"format": "something else", "version": 1}')
    with pytest.raises(BadInputError, match=r"pack.json cannot be read"):
        opened(pack)
