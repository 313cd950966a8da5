"""A user's folder that changes between the commands of a run."""

import json
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from PIL import Image

import drivetrain
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.data.commands.write_pack import PackRequest, write_pack
from drivetrain.inference.evaluate.evaluate import evaluate_run

SMALL: dict[str, Any] = {
    "model": "unet_same",
    "model_width": 4,
    "micro_batch_size": 2,
    "device": "cpu",
    "quiet": True,
    "flip_averaging": False,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Six images of one size with masks."""
    random = np.random.default_rng(0)
    for kind in ("images", "masks"):
        (tmp_path / "own" / kind).mkdir(parents=True)
    for index in range(6):
        mask = random.integers(0, 2, (32, 32), dtype=np.uint8)
        image = (mask * 100 + random.integers(0, 100, (32, 32))).astype(np.uint8)
        Image.fromarray(image).save(tmp_path / "own" / "images" / f"im{index}.png")
        Image.fromarray(mask).save(tmp_path / "own" / "masks" / f"im{index}.png")
    return tmp_path / "own"


def _train(folder: Path, run: Path, **options: Any) -> None:
    values = {**SMALL, "num_epochs": 1, **options}
    drivetrain.train(dataset="mask-folder", data_dir=str(folder), output_dir=str(run), **values)


def _evaluate(run: Path, **options: Any) -> list[str]:
    """What was warned of."""
    warnings: list[str] = []
    with mock.patch.object(Reporter, "warn", lambda _self, text: warnings.append(text)):
        evaluate_run(run, reporter=Reporter(quiet=True), device="cpu", **options)
    return warnings


def _rename(folder: Path, old: str, new: str) -> None:
    for kind in ("images", "masks"):
        (folder / kind / old).rename(folder / kind / new)


def _remove(folder: Path, name: str) -> None:
    for kind in ("images", "masks"):
        (folder / kind / name).unlink()


def _copied(folder: Path, new: Path, *, images: int) -> Path:
    """Another folder with some of the images under other names."""
    for kind in ("images", "masks"):
        (new / kind).mkdir(parents=True)
        for index in range(images):
            shutil.copy(folder / kind / f"im{index}.png", new / kind / f"x{index}.png")
    return new


def _files(run: Path) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads((run / "data_files.json").read_text())
    return found


def test_a_run_notes_what_it_trains_and_validates_on(folder: Path, tmp_path: Path) -> None:
    _train(folder, tmp_path / "run")
    files = _files(tmp_path / "run")
    assert sorted(files["train"] + files["validation"]) == [f"images/im{index}.png" for index in range(6)]
    rows = (tmp_path / "run" / "images.csv").read_text().splitlines()[1:]
    assert [Path(row.split(",")[0]).name for row in rows] == [Path(n).name for n in files["validation"]]


def test_a_run_does_not_go_on_when_a_file_has_another_name(folder: Path, tmp_path: Path) -> None:
    _train(folder, tmp_path / "run")
    _rename(folder, "im0.png", "zz.png")
    with pytest.raises(BadInputError, match=r"im0\.png is gone and images/zz\.png is new.*--overwrite"):
        _train(folder, tmp_path / "run", num_epochs=2)
    _rename(folder, "zz.png", "im0.png")
    _train(folder, tmp_path / "run", num_epochs=2)


def test_a_file_that_is_gone_is_named_though_the_number_tells_too(folder: Path, tmp_path: Path) -> None:
    _train(folder, tmp_path / "run")
    _remove(folder, "im0.png")
    with pytest.raises(BadInputError, match=r"images/im0\.png is gone"):
        _train(folder, tmp_path / "run", num_epochs=2)
    with pytest.raises(BadInputError, match=r"--validation-fraction is 0\.5"):
        _train(folder, tmp_path / "run", num_epochs=2, validation_fraction=0.5)


def test_a_note_that_cannot_be_read_is_not_passed_over(folder: Path, tmp_path: Path) -> None:
    _train(folder, tmp_path / "run")
    (tmp_path / "run" / "data_files.json").write_text("{")
    with pytest.raises(BadInputError, match=r"data_files\.json cannot be read"):
        _train(folder, tmp_path / "run", num_epochs=2)
    (tmp_path / "run" / "data_files.json").unlink()
    _train(folder, tmp_path / "run", num_epochs=2)
    assert (tmp_path / "run" / "data_files.json").is_file()


def test_a_run_goes_on_where_its_folder_has_moved(folder: Path, tmp_path: Path) -> None:
    _train(folder, tmp_path / "run")
    before = _files(tmp_path / "run")
    moved = tmp_path / "elsewhere" / "moved"
    moved.parent.mkdir()
    folder.rename(moved)
    _train(moved, tmp_path / "run", num_epochs=2)
    assert _files(tmp_path / "run") == before


def test_evaluate_measures_nothing_that_was_trained_on(folder: Path, tmp_path: Path) -> None:
    """Without its first training image the border between training and validation moves."""
    _train(folder, tmp_path / "run")
    assert _evaluate(tmp_path / "run") == []
    _remove(folder, "im0.png")
    with pytest.raises(BadInputError, match=r"RUN was trained on it.*images/im0\.png is gone"):
        _evaluate(tmp_path / "run")
    assert not (tmp_path / "run" / "evaluation-train.json").exists()
    _evaluate(tmp_path / "run", split="train")


def test_equal_names_in_another_folder_are_only_said(folder: Path, tmp_path: Path) -> None:
    _train(folder, tmp_path / "run")
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    assert _evaluate(tmp_path / "run", data_dir=str(other)) == []
    _remove(other, "im0.png")
    (warning,) = _evaluate(tmp_path / "run", data_dir=str(other))
    assert "have the names of images that RUN was trained on" in warning


def test_other_validation_images_are_said(folder: Path, tmp_path: Path) -> None:
    _train(folder, tmp_path / "run")
    new = _copied(folder, tmp_path / "new", images=6)
    (warning,) = _evaluate(tmp_path / "run", data_dir=str(new))
    assert "--split all evaluates every image" in warning


def test_every_image_of_another_folder_can_be_measured(folder: Path, tmp_path: Path) -> None:
    _train(folder, tmp_path / "run")
    new = _copied(folder, tmp_path / "new", images=3)
    assert _evaluate(tmp_path / "run", data_dir=str(new), split="all", flips=True) == []
    record = json.loads((tmp_path / "run" / "evaluation-all.json").read_text())
    assert record["evaluations"][0]["samples"] == 3
    assert record["settings"] == {"data_dir": str(new), "flips": True, "tile_overlap": None}
    (warning,) = _evaluate(tmp_path / "run", split="all")
    assert "5 of 6 images of --split all have the names of images that RUN was trained on" in warning


def test_one_image_is_enough_to_be_measured(folder: Path, tmp_path: Path) -> None:
    _train(folder, tmp_path / "run")
    one = _copied(folder, tmp_path / "one", images=1)
    assert _evaluate(tmp_path / "run", data_dir=str(one), split="all") == []


def test_a_folder_that_is_divided_has_no_all(tmp_path: Path) -> None:
    _photographs(tmp_path / "photos", splits=("train", "val"))
    drivetrain.train(num_epochs=1, **_photograph_options(tmp_path, "photos"))
    with pytest.raises(BadInputError, match=r"--split validation or --split train works"):
        _evaluate(tmp_path / "run", split="all")


def test_a_cross_validation_does_not_go_on_with_other_files(folder: Path, tmp_path: Path) -> None:
    """Fold 1 has not begun, so that only the job can know."""
    options = {**SMALL, "num_epochs": 1, "folds": 3, "dataset": "mask-folder", "data_dir": str(folder)}
    job = tmp_path / "job"
    drivetrain.crossval(output_dir=str(job), **options)
    for fold in (1, 2):
        shutil.rmtree(job / f"fold-{fold}")
    _rename(folder, "im0.png", "zz.png")
    with pytest.raises(BadInputError, match=r"not those of .*fold-0: images/im0\.png is gone"):
        drivetrain.crossval(output_dir=str(job), **options)
    assert not (job / "fold-1").exists()
    _rename(folder, "zz.png", "im0.png")
    drivetrain.crossval(output_dir=str(job), **options)
    validated = [name for fold in range(3) for name in _files(job / f"fold-{fold}")["validation"]]
    assert sorted(validated) == [f"images/im{index}.png" for index in range(6)]


def _photographs(folder: Path, *, splits: tuple[str, ...]) -> None:
    random = np.random.default_rng(1)
    for split in splits:
        for name in ("cat", "dog"):
            (folder / split / name).mkdir(parents=True)
            for index in range(3):
                pixels = random.integers(0, 256, (16, 16, 3), dtype=np.uint8)
                Image.fromarray(pixels).save(folder / split / name / f"{index}.png")


def _pack(photographs: Path, pack: Path) -> None:
    write_pack(photographs, pack, request=PackRequest())


def _photograph_options(tmp_path: Path, data: str, **options: Any) -> dict[str, Any]:
    values = {"dataset": "image-folder", "data_dir": str(tmp_path / data), "image_size": 16}
    return {
        **values,
        "micro_batch_size": 2,
        "device": "cpu",
        "quiet": True,
        "output_dir": str(tmp_path / "run"),
        **options,
    }


def test_classes_of_photographs_are_files_too(tmp_path: Path) -> None:
    _photographs(tmp_path / "photos", splits=("train", "val"))
    options = _photograph_options(tmp_path, "photos")
    drivetrain.train(num_epochs=1, **options)
    assert _files(tmp_path / "run")["validation"][0] == "validation: cat/0.png"
    assert _evaluate(tmp_path / "run") == []
    (tmp_path / "photos/train/cat/0.png").rename(tmp_path / "photos/train/cat/9.png")
    with pytest.raises(BadInputError, match=r"cat/0\.png is gone and cat/9\.png is new"):
        drivetrain.train(num_epochs=2, **options)
    assert _evaluate(tmp_path / "run") == []


def test_a_pack_is_the_folder_it_was_made_of(tmp_path: Path) -> None:
    _photographs(tmp_path / "photos", splits=("",))
    _pack(tmp_path / "photos", tmp_path / "pack")
    drivetrain.train(num_epochs=1, **_photograph_options(tmp_path, "photos"))
    drivetrain.train(num_epochs=2, **_photograph_options(tmp_path, "pack"))
    (tmp_path / "photos/cat/0.png").rename(tmp_path / "photos/cat/9.png")
    _pack(tmp_path / "photos", tmp_path / "other")
    with pytest.raises(BadInputError, match=r"cat/0\.png is gone and cat/9\.png is new"):
        drivetrain.train(num_epochs=3, **_photograph_options(tmp_path, "other"))


def test_a_pack_by_its_own_name_is_a_users_too(tmp_path: Path) -> None:
    _photographs(tmp_path / "photos", splits=("",))
    _pack(tmp_path / "photos", tmp_path / "pack")
    options = _photograph_options(tmp_path, "pack", dataset="packed")
    drivetrain.train(num_epochs=1, auto="off", **options)
    assert len(_files(tmp_path / "run")["train"]) == 5


def test_images_and_masks_are_no_classes(folder: Path, tmp_path: Path) -> None:
    options = {**_photograph_options(tmp_path, "own"), "data_dir": str(folder)}
    with pytest.raises(BadInputError, match=r"use --dataset mask-folder"):
        drivetrain.train(num_epochs=1, **options)
    assert not (tmp_path / "run").exists()
