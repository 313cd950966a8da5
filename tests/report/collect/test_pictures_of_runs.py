"""The confusion matrix and the example pictures of a run."""

from pathlib import Path
from typing import Any

import pytest

from drivetrain.core.files import read_json, write_json
from drivetrain.report.collect.budget import PictureBudget
from drivetrain.report.collect.confusion import confusion_of
from drivetrain.report.collect.examples import Pictures, pictures_of
from drivetrain.report.collect.stored_run import read_run
from tests.report.collect.fabricated import classifier, pipelined_segmentation, tiny_png


def _pictures(path: Path, *, bytes_left: int = 100_000) -> Pictures:
    return pictures_of(read_run(path), budget=PictureBudget(bytes_left=bytes_left))


def test_examples_lie_behind_their_cells(tmp_path: Path) -> None:
    run = read_run(classifier(tmp_path / "run"))
    found = pictures_of(run, budget=PictureBudget(bytes_left=100_000))
    matrix = confusion_of(run, cells=found.cells)
    assert matrix is not None
    assert matrix["classes"] == ["cat", "dog", "<b>bird</b>"]
    assert matrix["counts"] == [[2, 0, 0], [1, 1, 0], [0, 0, 2]]
    assert list(matrix["examples"]) == ["1,0", "0,0"]
    (mistake,) = matrix["examples"]["1,0"]
    assert {name: value for name, value in mistake.items() if name != "image"} == {
        "name": "a<script>.png",
        "truth": "dog",
        "predicted": "cat",
        "loss": 2.5,
    }
    assert mistake["image"].startswith("data:image/png;base64,")
    assert [sample["name"] for sample in found.worst] == ["a<script>.png", "b.png"]


def test_masks_have_three_pictures_and_scores(tmp_path: Path) -> None:
    (mask,) = _pictures(pipelined_segmentation(tmp_path / "run")).masks
    assert mask["scores"] == {"IoU": 0.4}
    assert len({mask["image"], mask["truth"], mask["predicted"]}) == 1
    assert mask["image"].startswith("data:image/png;base64,")


def test_pictures_beyond_the_budget_are_left_out_and_counted(tmp_path: Path) -> None:
    path = classifier(tmp_path / "run")
    one = len("data:image/png;base64,") + 4 * -(-len(tiny_png()) // 3)
    budget = PictureBudget(bytes_left=one)
    found = pictures_of(read_run(path), budget=budget)
    assert [sample["name"] for sample in found.worst] == ["a<script>.png"]
    assert list(found.cells) == ["1,0"]
    assert (budget.bytes_left, budget.left_out) == (0, 1)


@pytest.mark.parametrize("name", ["../../secret.png", "/etc/passwd", "a/b.png", "000.svg", ".."])
def test_a_picture_outside_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    path = classifier(tmp_path / "run")
    record = read_json(path / "examples" / "examples.json")
    record["samples"][0]["file"] = name
    write_json(path / "examples" / "examples.json", record)
    with pytest.raises(ValueError, match="is not the name of an example picture"):
        _pictures(path)


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    path = classifier(tmp_path / "run")
    (tmp_path / "secret").write_bytes(b"secret")
    (path / "examples" / "000.png").unlink()
    (path / "examples" / "000.png").symlink_to(tmp_path / "secret")
    assert [sample["name"] for sample in _pictures(path).worst] == ["b.png"]


def test_a_missing_picture_is_left_out(tmp_path: Path) -> None:
    path = classifier(tmp_path / "run")
    (path / "examples" / "000.png").unlink()
    assert [sample["name"] for sample in _pictures(path).worst] == ["b.png"]


def test_of_many_classes_those_with_most_mistakes_are_shown(tmp_path: Path) -> None:
    path = classifier(tmp_path / "run")
    names = [f"c{index}" for index in range(70)]
    rows: list[list[Any]] = [
        [name, *(5 if at == index else 0 for at in range(70)), 1.0] for index, name in enumerate(names)
    ]
    rows[69][1 + 3] = 2
    lines = [["true class", *names, "accuracy"], *rows]
    (path / "confusion.csv").write_text("".join(",".join(map(str, line)) + "\n" for line in lines))
    run = read_run(path)
    matrix = confusion_of(run, cells={"69,3": [], "68,68": []})
    assert matrix is not None
    assert matrix["classes"] == [*names[:59], "c69"]
    assert matrix["counts"][59][3] == 2
    assert matrix["examples"] == {"59,3": []}
    assert "the 60 of 70 classes with the most mistakes" in run.problems[0]


def test_a_run_without_pictures_has_none(tmp_path: Path) -> None:
    run = read_run(tmp_path)
    assert pictures_of(run, budget=PictureBudget(bytes_left=10)) == Pictures()
    assert confusion_of(run, cells={}) is None
