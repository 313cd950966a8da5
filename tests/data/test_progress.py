"""Whoever reads many files tells how far it is; who called may show it."""

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch

from drivetrain.data import progress
from drivetrain.data.bad_samples import find_bad
from drivetrain.data.image_size import common_size
from drivetrain.data.mask_folder import open_mask_folder
from drivetrain.data.masked_images import pixel_counts
from drivetrain.data.pack_write import PackRequest, write_pack
from drivetrain.data.preparation import build_preparation
from drivetrain.data.progress import counted, showing_progress
from drivetrain.data.resident_data import ResidentData
from drivetrain.data.splits import open_data
from drivetrain.data.verify_files import check_dataset
from drivetrain.recipe.schema import Recipe
from drivetrain.run.reporter import Reporter
from tests.data.folders import write_images
from tests.data.masks import write_pairs


class Watcher:
    """Writes down what it is told, at every step."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def start_progress(self, what: str, *, done: int, total: int) -> None:
        self.told.append(f"{what} {done}/{total}")

    def progress_due(self) -> bool:
        return True

    def progress(self, done: int, detail: str) -> None:
        self.told.append(f"{done} {detail}")

    def stop_progress(self) -> None:
        self.told.append("end")

    def say(self, text: str) -> None:
        self.told.append(text)


@pytest.fixture
def every_end_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_WORTH_A_LINE_S", 0.0)


def _watched(work: Callable[[], object]) -> list[str]:
    watcher = Watcher()
    with showing_progress(watcher):
        work()
    return watcher.told


@pytest.mark.usefixtures("every_end_is_said")
def test_a_name_a_count_and_an_end() -> None:
    told = _watched(lambda: list(counted("abc", total=3, doing="scanning", done="letters seen")))
    assert told[:5] == ["scanning 0/3", "1 letters seen", "2 letters seen", "3 letters seen", "end"]
    assert told[5].startswith("3 letters seen in 0.")


def test_nobody_watches() -> None:
    assert list(counted("abc", total=3, doing="scanning", done="letters seen")) == ["a", "b", "c"]
    assert _watched(lambda: list(counted("", total=0, doing="scanning", done="letters seen"))) == []


def test_work_that_ends_early_or_fails_takes_its_bar_away() -> None:
    def look_at_one() -> None:
        with closing(counted("abc", total=3, doing="scanning", done="letters seen")) as letters:
            next(letters)

    assert _watched(look_at_one) == ["scanning 0/3", "end"]
    watcher = Watcher()
    with pytest.raises(ZeroDivisionError), showing_progress(watcher):
        list(counted((1 // n for n in (1, 0)), total=2, doing="dividing", done="numbers divided"))
    assert watcher.told == ["dividing 0/2", "1 numbers divided", "end"]


def test_plain_lines_where_there_is_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_WORTH_A_LINE_S", 0.0)
    monkeypatch.setattr("drivetrain.run.reporter._LINE_PERIOD_S", 0.0)
    with Reporter(to_stderr=True) as reporter, showing_progress(reporter):
        list(counted("ab", total=2, doing="scanning", done="letters seen"))
    shown = capsys.readouterr()
    assert shown.out == ""
    first, second, end = shown.err.splitlines()
    assert (first, second) == ("1/2  letters seen", "2/2  letters seen")
    assert end.startswith("2 letters seen in ")


def test_folders_of_images_with_masks(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    told = _watched(lambda: open_mask_folder(str(tmp_path)))
    assert told[0] == "scanning 0/3"
    assert told[-2:] == ["3 images with their masks scanned", "end"]
    source = open_mask_folder(str(tmp_path)).train
    told = _watched(lambda: pixel_counts(source, num_classes=2))
    assert told[-2] == "3 masks counted for class weights"


def test_folders_of_classes(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "photos", {"cat": 3, "dog": 2})
    recipe = Recipe(dataset="image-folder", data_dir=str(folder), validation_fraction=0.0)
    opened = open_data(recipe)
    samples = len(opened.train)
    store = opened.train.store  # type: ignore[attr-defined]
    told = _watched(lambda: common_size(store, refuse_bad=False))
    assert told[-2:] == [f"{samples} image sizes looked at", "end"]
    told = _watched(lambda: find_bad(opened.train, split="train"))
    assert told[-2:] == [f"{samples} train images checked", "end"]
    told = _watched(lambda: write_pack(folder, tmp_path / "pack", request=PackRequest()))
    assert told[-2:] == [f"{samples} train images packed", "end"]
    preprocess = build_preparation(recipe, opened.spec)
    told = _watched(lambda: ResidentData(opened.train, preprocess=preprocess, device=torch.device("cpu")))
    assert told[-2:] == [f"{samples} samples read", "end"]


def test_checks_of_images_with_masks(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    told = _watched(lambda: check_dataset("mask-folder", data_dir=str(tmp_path)))
    assert told[-2:] == ["3 train images read", "end"]


def test_samples_read_by_threads_are_in_their_places(tmp_path: Path) -> None:
    write_pairs(tmp_path, count=40)
    opened = open_data(Recipe(model="unet_same", dataset="mask-folder", data_dir=str(tmp_path)))
    preprocess = build_preparation(Recipe(model="unet_same", dataset="mask-folder"), opened.spec)
    data = ResidentData(opened.train, preprocess=preprocess, device=torch.device("cpu"))
    rows, labels = data.span(0, len(opened.train))
    images, masks = opened.train.fetch(np.arange(len(opened.train)))
    assert np.array_equal(rows.numpy(), images.reshape(len(images), -1))
    assert np.array_equal(labels.numpy(), masks)
