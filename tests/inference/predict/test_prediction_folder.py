"""The folder that `predict` writes into: never the one that a run was trained on, nor over a user's work."""

import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.inference.model.restore import TrainedRun
from drivetrain.inference.predict.prediction_folder import (
    note_files,
    noted_files,
    require_free_names,
    require_outside_data,
    write_tables,
)
from drivetrain.recipe.schema import Recipe
from drivetrain.store.directory import RunDirectory


def _run(path: Path, *, data_dir: Path | str | None, dataset: str = "mask-folder") -> TrainedRun:
    recipe = Recipe(dataset=dataset, data_dir=None if data_dir is None else str(data_dir))
    return cast(TrainedRun, SimpleNamespace(recipe=recipe, directory=RunDirectory(path)))


@pytest.mark.parametrize("output", ["um", "um/masks", "um/masks/deeper", "um/images/../masks", "link/masks"])
@pytest.mark.parametrize("dataset", ["mask-folder", "image-folder", "isbi2012", "package.module:factory"])
def test_the_data_folder_of_a_run_is_not_written_into(tmp_path: Path, output: str, dataset: str) -> None:
    (tmp_path / "um" / "masks").mkdir(parents=True)
    (tmp_path / "um" / "images").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "um")
    run = _run(tmp_path / "run", data_dir=tmp_path / "um", dataset=dataset)
    with pytest.raises(
        BadInputError, match=r"is inside .*um, the --data-dir .*; --output .*run/predictions works"
    ):
        require_outside_data(tmp_path / output, run)


def test_negative_control_what_is_not_inside_may_be_written(tmp_path: Path) -> None:
    run = _run(tmp_path / "run", data_dir=tmp_path / "um")
    require_outside_data(tmp_path / "um-predictions", run)
    require_outside_data(tmp_path, run)
    require_outside_data(tmp_path / "um", _run(tmp_path / "run", data_dir=None))
    require_outside_data(tmp_path / "um", _run(tmp_path / "run", data_dir=tmp_path / "um", dataset="mnist"))


def test_a_run_that_lies_in_its_data_folder_keeps_its_own(tmp_path: Path) -> None:
    run = _run(tmp_path / "um" / "run", data_dir=tmp_path / "um")
    require_outside_data(tmp_path / "um" / "run" / "predictions", run)
    with pytest.raises(BadInputError, match="is inside"):
        require_outside_data(tmp_path / "um" / "out", run)


def test_a_relative_data_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInputError, match=r"^--output um/masks is inside um, "):
        require_outside_data(Path("um/masks"), _run(Path("run"), data_dir="um"))


def test_notes_add_up(tmp_path: Path) -> None:
    assert noted_files(tmp_path / "out") == frozenset()
    note_files(tmp_path / "out", ["a", "b"])
    note_files(tmp_path / "out", ["b", "c"])
    assert noted_files(tmp_path / "out") == {"a", "b", "c"}
    for name in ("a", "c"):
        (tmp_path / "out" / name).touch()
    require_free_names(tmp_path / "out", ["a", "b", "c", "d"])


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"written": 3}'])
def test_a_damaged_note_is_none(tmp_path: Path, content: str) -> None:
    note_files(tmp_path, ["a"])
    (tmp_path / "a").touch()
    (tmp_path / ".drivetrain-predict.json").write_text(content)
    with pytest.raises(BadInputError, match="contains a, and there is no record"):
        require_free_names(tmp_path, ["a"])
    assert noted_files(tmp_path) == frozenset()


def test_the_folder_that_works_is_not_there_yet(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("out", "out-2"):
        (tmp_path / name).mkdir()
    (tmp_path / "out" / "a").touch()
    with pytest.raises(BadInputError, match=r"--output .*out-3 works\.$"):
        require_free_names(tmp_path / "out", ["a"])
    monkeypatch.chdir(tmp_path / "out")
    with pytest.raises(BadInputError, match=r"^--output \. contains a, .*; --output predictions-2 works\.$"):
        require_free_names(Path(), ["a"])


def _predicted(folder: Path, *masks: str) -> list[str]:
    """Masks of one byte each and a table, as a `predict` leaves them; the names of all."""
    names = [*masks, "predictions.csv"]
    require_free_names(folder, names)
    note_files(folder, names)
    for name in masks:
        (folder / name).write_bytes(b"0")
    write_tables(folder, [], ["csv"], as_csv=lambda rows: "file\n")
    return names


@pytest.mark.parametrize("content", [b"1", b"00", b""])
@pytest.mark.parametrize("name", ["b.png", "predictions.csv"])
def test_a_mask_that_was_corrected_since_is_not_overwritten(
    tmp_path: Path, name: str, content: bytes
) -> None:
    names = _predicted(tmp_path / "out", "a.png", "b.png")
    (tmp_path / "out" / name).write_bytes(content)
    with pytest.raises(
        BadInputError,
        match=rf"^--output .*out contains {name}, which was changed .*; --output .*out-2 works\.$",
    ):
        require_free_names(tmp_path / "out", names)
    assert (tmp_path / "out" / name).read_bytes() == content


def test_negative_control_what_is_unchanged_or_deleted_or_not_asked_for_is_no_hindrance(
    tmp_path: Path,
) -> None:
    names = _predicted(tmp_path, "a.png", "b.png", "c.png")
    (tmp_path / "a.png").write_bytes((tmp_path / "a.png").read_bytes())
    (tmp_path / "b.png").unlink()
    (tmp_path / "c.png").write_bytes(b"corrected")
    require_free_names(tmp_path, ["a.png", "b.png", "predictions.csv"])
    with pytest.raises(BadInputError, match=r"c\.png"):
        require_free_names(tmp_path, names)


def test_a_later_predict_of_other_images_does_not_take_a_correction_for_its_own(tmp_path: Path) -> None:
    _predicted(tmp_path, "a.png")
    (tmp_path / "a.png").write_bytes(b"corrected")
    _predicted(tmp_path, "b.png")
    with pytest.raises(BadInputError, match=r"contains a\.png, which was changed"):
        _predicted(tmp_path, "a.png")


def test_a_directory_in_the_place_of_a_mask_is_a_change(tmp_path: Path) -> None:
    names = _predicted(tmp_path, "a.png")
    (tmp_path / "a.png").unlink()
    (tmp_path / "a.png").mkdir()
    with pytest.raises(BadInputError, match=r"contains a\.png, which was changed"):
        require_free_names(tmp_path, names)


def test_older_notes_are_names_alone_and_get_their_checksums_when_written_again(tmp_path: Path) -> None:
    note = tmp_path / ".drivetrain-predict.json"
    note.write_text(json.dumps({"written": ["a.png", "predictions.csv"]}))
    (tmp_path / "a.png").write_bytes(b"anything")
    names = _predicted(tmp_path, "a.png")
    assert set(json.loads(note.read_text())["sha256"]) == set(names)
    (tmp_path / "a.png").write_bytes(b"corrected")
    with pytest.raises(BadInputError, match="was changed after"):
        require_free_names(tmp_path, names)


def test_what_an_interrupted_predict_began_may_be_written(tmp_path: Path) -> None:
    names = _predicted(tmp_path, "a.png", "b.png")
    note_files(tmp_path, ["a.png"])
    (tmp_path / "a.png").write_bytes(b"by other weights")
    require_free_names(tmp_path, names)
    _predicted(tmp_path, "b.png")
    require_free_names(tmp_path, names)
