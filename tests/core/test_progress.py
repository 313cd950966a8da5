"""Whoever reads many files tells how far it is; who called may show it."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from drivetrain.console.reporter import Reporter
from drivetrain.core.progress import counted, showing_progress, shown
from drivetrain.data.bad_samples import find_bad
from drivetrain.data.commands.check_files import check_dataset
from drivetrain.data.commands.write_pack import PackRequest, write_pack
from drivetrain.data.feeds.resident_data import ResidentData
from drivetrain.data.masks.mask_folder import open_mask_folder
from drivetrain.data.masks.masked_images import pixel_counts
from drivetrain.data.preprocess import build_preparation
from drivetrain.data.sources.stored_images import common_size
from drivetrain.data.splits import open_data
from drivetrain.recipe.schema import Recipe
from tests.core.watcher import Watcher, watched
from tests.data.folders import write_images
from tests.data.mask_files import write_pairs


def test_a_name_a_count_and_an_end() -> None:
    told = watched(lambda: list(counted("abc", total=3, what="looking at letters")))
    assert told == ["looking at letters of 3", "1", "2", "3", "end"]


def test_nobody_watches() -> None:
    assert list(counted("abc", total=3, what="looking at letters")) == ["a", "b", "c"]
    assert watched(lambda: list(counted("", total=0, what="looking at letters"))) == []


def test_work_of_unknown_length_has_a_name_and_an_end() -> None:
    def think() -> None:
        with shown("thinking"):
            pass

    think()
    assert watched(think) == ["thinking of None", "end"]


def test_work_that_ends_early_or_fails_is_no_longer_shown() -> None:
    def look_at_one() -> None:
        with closing(counted("abc", total=3, what="looking at letters")) as letters:
            next(letters)

    assert watched(look_at_one) == ["looking at letters of 3", "end"]
    watcher = Watcher()
    with pytest.raises(ZeroDivisionError), showing_progress(watcher):
        list(counted((1 // n for n in (1, 0)), total=2, what="dividing"))
    assert watcher.told == ["dividing of 2", "1", "end"]


def test_plain_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("drivetrain.console.reporter._LINE_PERIOD_S", 0.0)
    with Reporter(to_stderr=True) as reporter, showing_progress(reporter):
        list(counted("ab", total=2, what="looking at letters"))
    shown = capsys.readouterr()
    assert shown.out == ""
    lines = shown.err.splitlines()
    assert [line for line in lines if "looking at letters" in line and "2/2" in line]
    assert lines[-1].startswith("looking at letters: done after ")


def test_folders_of_images_with_masks(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    told = watched(lambda: open_mask_folder(str(tmp_path)))
    assert told[-5:] == ["scanning images with masks of 3", "1", "2", "3", "end"]
    source = open_mask_folder(str(tmp_path)).train
    told = watched(lambda: pixel_counts(source, num_classes=2))
    assert told == ["counting pixels of classes of 3", "1", "2", "3", "end"]


def test_folders_of_classes(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "photos", {"cat": 3, "dog": 2})
    recipe = Recipe(dataset="image-folder", data_dir=str(folder), validation_fraction=0.0)
    opened = open_data(recipe)
    samples = len(opened.train)
    store = opened.train.store  # type: ignore[attr-defined]
    told = watched(lambda: common_size(store, refuse_bad=False))
    assert [told[0], *told[-2:]] == [f"reading image sizes of {samples}", str(samples), "end"]
    told = watched(lambda: find_bad(opened.train, split="train"))
    assert [told[0], *told[-2:]] == [f"checking train images of {samples}", str(samples), "end"]
    told = watched(lambda: write_pack(folder, tmp_path / "pack", request=PackRequest()))
    packing = told[-samples - 2 :]
    assert [packing[0], *packing[-2:]] == [f"packing train images of {samples}", str(samples), "end"]
    preprocess = build_preparation(recipe, opened.spec)
    told = watched(lambda: ResidentData(opened.train, preprocess=preprocess, device=torch.device("cpu")))
    assert [told[0], *told[-2:]] == [f"reading samples of {samples}", str(samples), "end"]


def test_checks_of_images_with_masks(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    told = watched(lambda: check_dataset("mask-folder", data_dir=str(tmp_path)))
    assert told[-5:] == ["reading train images of 3", "1", "2", "3", "end"]


def test_samples_read_by_threads_are_in_their_places(tmp_path: Path) -> None:
    write_pairs(tmp_path, count=40)
    opened = open_data(Recipe(model="unet_same", dataset="mask-folder", data_dir=str(tmp_path)))
    preprocess = build_preparation(Recipe(model="unet_same", dataset="mask-folder"), opened.spec)
    data = ResidentData(opened.train, preprocess=preprocess, device=torch.device("cpu"))
    rows, labels = data.span(0, len(opened.train))
    images, masks = opened.train.fetch(np.arange(len(opened.train)))
    assert np.array_equal(rows.numpy(), images.reshape(len(images), -1))
    assert np.array_equal(labels.numpy(), masks)
