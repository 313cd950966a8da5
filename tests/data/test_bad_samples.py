"""Samples that cannot be read."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.bad_samples import bad_indices, without_bad
from drivetrain.data.feeds.resident import ResidentFeed
from drivetrain.data.files.decode import BadSampleError
from drivetrain.data.preprocess import Preprocess
from drivetrain.data.source import DataSplits
from drivetrain.data.splits import open_data
from drivetrain.recipe.schema import Recipe
from tests.data.folders import truncate, write_images
from tests.data.helpers import CPU, collect, make_order


def opened(folder: Path, **fields: Any) -> DataSplits:
    return open_data(Recipe(**{"dataset": "image-folder", "data_dir": str(folder), **fields}))


def test_an_empty_file_stops_everything_at_the_start(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 4, "b": 4})
    (tmp_path / "b" / "002.png").write_bytes(b"")
    for fields in ({}, {"image_size": 8}):
        with pytest.raises(BadInputError, match=r"b/002.png cannot be read: .*--on-bad-sample skip"):
            opened(tmp_path, **fields)


def test_a_truncated_file_stops_where_it_is_asked_for(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 4}, sizes=((40, 40),))
    truncate(tmp_path / "a" / "002.png")
    train = opened(tmp_path, validation_fraction=0.0).train
    train.fetch(np.array([0, 1, 3]))
    with pytest.raises(BadSampleError, match=r"a/002.png cannot be read") as raised:
        train.fetch(np.arange(4))
    assert raised.value.exit_status == 1


def test_skip_names_and_counts_and_keeps_every_other_place(tmp_path: Path) -> None:
    whole = opened(write_images(tmp_path / "whole", {"a": 10, "b": 10}, sizes=((40, 40),)))
    damaged = write_images(tmp_path / "damaged", {"a": 10, "b": 10}, sizes=((40, 40),))
    truncate(damaged / "a" / "004.png")
    (damaged / "b" / "001.png").write_bytes(b"")
    (damaged / "b" / "007.png").write_text("no image")
    data = opened(damaged, on_bad_sample="skip")
    assert {Path(bad.name).name for bad in data.bad_samples} == {"004.png", "001.png", "007.png"}
    (warning,) = [said for said in data.warnings if "--on-bad-sample" in said]
    assert "leaves out 3 samples" in warning
    assert "b/001.png (the file is empty)" in warning
    assert len(data.train) == len(whole.train) == 16
    bad = bad_indices(data.train)
    places = np.setdiff1d(np.arange(16), bad)
    assert np.array_equal(data.train.fetch(places)[0], whole.train.fetch(places)[0])
    assert not data.train.fetch(bad)[0].any()
    assert np.array_equal(data.train.fetch(np.arange(16))[1], whole.train.fetch(np.arange(16))[1])
    assert data.validation is not None
    assert len(bad) + 4 - len(data.validation) == 3


def test_skip_treats_all_other_samples_of_every_update_the_same(tmp_path: Path) -> None:
    intact = write_images(tmp_path / "whole", {"a": 10, "b": 10}, sizes=((40, 40),))
    whole = opened(intact, validation_fraction=0.0)
    damaged = write_images(tmp_path / "damaged", {"a": 10, "b": 10}, sizes=((40, 40),))
    truncate(damaged / "a" / "004.png")
    data = opened(damaged, validation_fraction=0.0, on_bad_sample="skip")
    order = make_order(20, global_batch=8)
    marked = replace(order, bad=tuple(bad_indices(data.train).tolist()))
    assert marked.bad == (4,)
    feeds = [
        ResidentFeed(
            splits.train,
            order=chosen,
            preprocess=Preprocess(splits.spec),
            micro_batch_size=4,
            device=CPU,
        )
        for splits, chosen in ((whole, order), (data, marked))
    ]
    seen = 0
    for update in range(6):
        is_bad = order.indices(update).reshape(2, 4) == 4
        for row, first, second in zip(
            is_bad, *(collect(feed, range(update, update + 1)) for feed in feeds), strict=True
        ):
            good = ~row
            assert np.array_equal(first.images.numpy()[good], second.images.numpy()[good])
            assert np.array_equal(first.labels.numpy()[good], second.labels.numpy()[good])
            assert np.array_equal(first.slots.numpy(), second.slots.numpy())
            if second.weights is not None:
                assert second.weights.numpy().tolist() == good.tolist()
            seen += int(row.sum())
        assert marked.real_samples(update) == 8 - int(is_bad.sum())
    assert seen > 0


def test_measuring_leaves_bad_samples_out(tmp_path: Path) -> None:
    write_images(tmp_path / "train", {"a": 3}, sizes=((40, 40),))
    write_images(tmp_path / "val", {"a": 5}, sizes=((40, 40),), seed=1)
    truncate(tmp_path / "val" / "a" / "002.png")
    truncate(tmp_path / "train" / "a" / "000.png")
    data = opened(tmp_path, on_bad_sample="skip")
    assert data.validation is not None
    assert (len(data.validation), len(data.train), len(without_bad(data.train))) == (4, 3, 2)
    assert data.validation.fetch(np.arange(4))[0].any(axis=(1, 2, 3)).all()


def test_only_samples_in_use_are_looked_at(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 10}, sizes=((40, 40),))
    truncate(tmp_path / "a" / "009.png")
    data = opened(tmp_path, on_bad_sample="skip", limit_train_samples=2, validation_fraction=0.0)
    assert data.bad_samples == ()


def test_nothing_readable_is_an_error(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 2})
    for path in (tmp_path / "a").iterdir():
        path.write_text("no image")
    with pytest.raises(BadInputError, match="No training sample can be read"):
        opened(tmp_path, on_bad_sample="skip", validation_fraction=0.0)


def test_skip_without_image_files_is_said() -> None:
    (warning,) = open_data(Recipe(dataset="digits", on_bad_sample="skip")).warnings
    assert "--on-bad-sample skip has no effect" in warning
