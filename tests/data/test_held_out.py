"""Which samples are held out: random, stratified, in whole groups."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from drivetrain.core.errors import BadInputError
from drivetrain.data.folds import fold_indices, take_fold
from drivetrain.data.groups.find_groups import find_groups
from drivetrain.data.groups.sample_paths import sample_paths
from drivetrain.data.held_out import held_out_order
from drivetrain.data.labels import labels_of
from drivetrain.data.source import DataSplits, Source
from drivetrain.data.splits import open_data, split_user_data
from drivetrain.recipe.load import resolve_recipe
from tests.data.folders import write_images
from tests.data.mask_files import classes, grey, save, save_pages

# Files of one patient have one diagnosis; patients have between 2 and 5 images.
PATIENTS = {"ill": (2, 3, 4, 5, 2, 4), "well": (5, 5, 3, 2, 4, 3, 3, 5)}


def write_patients(folder: Path) -> Path:
    patient = 0
    for name, counts in PATIENTS.items():
        (folder / name).mkdir(parents=True)
        for count in counts:
            patient += 1
            for number in range(count):
                pixels = np.full((4, 4, 3), patient * 10 + number, dtype=np.uint8)
                Image.fromarray(pixels).save(folder / name / f"p{patient:02}_{number}.png")
    return folder


def opened(folder: Path, dataset: str = "image-folder", **options: Any) -> DataSplits:
    model = {"model": "unet_same"} if dataset == "mask-folder" else {}
    asked = {"dataset": dataset, "data_dir": str(folder), **model, **options}
    return open_data(resolve_recipe(overrides=asked).recipe)


def patients_of(source: Source | None) -> set[str]:
    assert source is not None
    paths = sample_paths(source, data_dir=None)
    assert paths is not None
    return {Path(path).name.split("_")[0] for path in paths}


def test_the_stratified_order_has_the_share_of_every_class_at_its_beginning() -> None:
    labels = np.repeat(np.arange(4), (100, 40, 10, 3))
    np.random.default_rng(0).shuffle(labels)
    order = held_out_order(len(labels), labels=labels, seed=3)
    assert sorted(order.tolist()) == list(range(len(labels)))
    for count in (15, 31, 77, 153):
        found = np.bincount(labels[order[:count]], minlength=4)
        assert np.abs(found - np.array([100, 40, 10, 3]) * count / len(labels)).max() <= 1
    again = held_out_order(len(labels), labels=labels, seed=4)
    assert again.tolist() != order.tolist()
    plain = held_out_order(len(labels), labels=None, seed=3)
    shares = np.bincount(labels[plain[:77]], minlength=4)
    assert np.abs(shares - np.array([100, 40, 10, 3]) * 77 / 153).max() > 1


def test_a_stratified_share_of_a_folder(tmp_path: Path) -> None:
    write_images(tmp_path, {"a": 40, "b": 20, "c": 5})
    data = opened(tmp_path, split_scheme="stratified")
    assert data.validation is not None
    assert np.bincount(labels_of(data.validation)).tolist() == [8, 4, 1]
    assert np.bincount(labels_of(data.train)).tolist() == [32, 16, 4]
    assert data.warnings == []


@pytest.mark.parametrize("scheme", ["random", "stratified"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_groups_are_held_out_whole(tmp_path: Path, scheme: str, seed: int) -> None:
    write_patients(tmp_path)
    data = opened(tmp_path, group_by="prefix", split_scheme=scheme, seed=seed)
    assert data.validation is not None
    assert patients_of(data.train).isdisjoint(patients_of(data.validation))
    assert len(patients_of(data.train)) + len(patients_of(data.validation)) == 14
    assert abs(len(data.validation) - 10) <= 2
    if scheme == "stratified":
        assert np.abs(np.bincount(labels_of(data.validation)) - np.array([4, 6])).max() <= 1
    split = opened(tmp_path, seed=seed)
    assert patients_of(split.train) & patients_of(split.validation)


def test_folds_divide_no_group_and_cover_all(tmp_path: Path) -> None:
    write_patients(tmp_path)
    held = []
    for fold in range(3):
        data = opened(tmp_path, group_by=r"^(p\d+)_", folds=3, fold=fold)
        assert patients_of(data.train).isdisjoint(patients_of(data.validation))
        held.append(patients_of(data.validation))
        assert len(np.unique(labels_of(data.validation))) == 2  # type: ignore[arg-type]
    assert len(set.union(*held)) == sum(map(len, held)) == 14
    with pytest.raises(BadInputError, match="--folds 15 is more than the 14 groups of --group-by; --folds"):
        opened(tmp_path, group_by="prefix", folds=15, fold=0)


def test_without_groups_folds_are_as_before(tmp_path: Path) -> None:
    write_patients(tmp_path)
    data = opened(tmp_path, validation_fraction=0)
    fold = take_fold(data, folds=3, fold=1, seed=0)
    assert patients_of(fold.train) & patients_of(fold.validation)
    groups = find_groups(data, group_by="prefix", data_dir=str(tmp_path))
    train, held = fold_indices("disjoint", samples=50, folds=3, fold=1, seed=0, groups=groups)
    assert set(groups.of_samples[train].tolist()).isdisjoint(groups.of_samples[held].tolist())


def test_pages_of_a_file_stay_together(tmp_path: Path) -> None:
    for name in ("left", "right", "top"):
        pages = [grey(seed=number) for number in range(4)]
        save_pages(tmp_path / "images" / f"{name}.tif", pages)
        masks = [classes(2, seed=number) * np.uint8(255) for number in range(4)]
        save_pages(tmp_path / "masks" / f"{name}.tif", masks)
    data = opened(tmp_path, "mask-folder", group_by="file", validation_fraction=0.3)
    assert data.validation is not None
    assert (len(data.train), len(data.validation)) == (8, 4)
    assert not any("are in both" in warning for warning in data.warnings)
    divided = opened(tmp_path, "mask-folder", validation_fraction=0.3)
    assert any("use --group-by file" in warning for warning in divided.warnings)


def test_folders_of_images_with_masks_are_groups(tmp_path: Path) -> None:
    for who in ("anna", "bert", "cleo"):
        for number in range(2):
            save(tmp_path / "images" / who / f"{who}{number}.png", grey(seed=number))
            mask = classes(2, seed=number) * np.uint8(255)
            save(tmp_path / "masks" / who / f"{who}{number}.png", mask)
    data = opened(tmp_path, "mask-folder", group_by="folder", folds=3, fold=0)
    paths = sample_paths(data.validation, data_dir=str(tmp_path))  # type: ignore[arg-type]
    assert paths is not None
    assert len({Path(path).parent for path in paths}) == 1
    assert len(paths) == 2


@pytest.mark.parametrize(
    ("group_by", "says"),
    [
        ("folder", "finds a group in 0 of 50 files, but none in ill/p01_0.png"),
        ("file", "gives each of the 50 samples a group of its own"),
        ("^(p)", "puts all 50 samples into one group, p, so none could be held out"),
        ("^(p0.)_", "finds a group in 33 of 50 files, but none in well/p10_0.png"),
        ("(x)?p", "finds a group in 0 of 50 files"),
    ],
)
def test_names_without_groups_are_refused(tmp_path: Path, group_by: str, says: str) -> None:
    write_patients(tmp_path)
    with pytest.raises(BadInputError) as refusal:
        opened(tmp_path, group_by=group_by)
    assert says in str(refusal.value)


def test_samples_without_names_are_refused() -> None:
    recipe = resolve_recipe(overrides={"group_by": "prefix", "dataset": "digits"}).recipe
    with pytest.raises(BadInputError, match="--group-by prefix needs samples with file names"):
        open_data(recipe)
    own = resolve_recipe(overrides={"group_by": "prefix", "validation_fraction": 0.2}).recipe
    with pytest.raises(BadInputError, match="needs samples with file names"):
        split_user_data(own, train=(np.zeros((9, 4, 4, 1), dtype=np.uint8), np.arange(9) % 2))


def test_a_folder_of_validation_images_leaves_nothing_to_hold_out(tmp_path: Path) -> None:
    write_patients(tmp_path / "train")
    write_patients(tmp_path / "val")
    data = opened(tmp_path, group_by="prefix", split_scheme="stratified")
    scheme, groups = data.warnings
    assert scheme.startswith("--split-scheme stratified has no effect: the data have validation samples")
    assert "with p01, p02, p03, p04, p05 and 9 more on both sides" in groups
    held = opened(tmp_path, group_by="prefix", validation_fraction=0.2)
    assert patients_of(held.train).isdisjoint(patients_of(held.validation))
