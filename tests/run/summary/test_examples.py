"""What a training leaves for its page: example pictures, the origins of its values, its environment."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from drivetrain.core.files import read_json
from drivetrain.data.source import ArraySource, DataSpec, DataSplits
from drivetrain.pictures.encode import encode_small
from drivetrain.report.collect.pages import run_contents
from drivetrain.run.summary import class_examples
from drivetrain.run.summary.class_examples import choose_cells, choose_worst, write_class_examples
from drivetrain.run.summary.mask_examples import PredictedMask, write_overlays
from drivetrain.store.directory import RunDirectory
from drivetrain.tasks.classification_measure import Guesses
from tests.run.small_training import train_small_run


def _guesses(labels: list[int], classes: list[int], losses: list[float]) -> Guesses:
    return Guesses(
        labels=np.array(labels, dtype=np.int32),
        classes=np.array(classes, dtype=np.int32),
        confidences=np.full(len(labels), 0.5, dtype=np.float32),
        losses=np.array(losses, dtype=np.float32),
    )


def test_a_cell_shows_at_most_four_of_the_largest_loss() -> None:
    guesses = _guesses([0] * 6 + [1], [1] * 6 + [1], [0.1, 0.6, 0.3, float("nan"), 0.2, 0.5, 0.9])
    assert choose_cells(guesses) == {(0, 1): [3, 1, 5, 2], (1, 1): [6]}
    assert choose_worst(guesses) == [3, 6, 1, 5, 2, 4, 0]


def test_mistakes_come_before_right_answers_where_room_is_short() -> None:
    labels = [index // 20 for index in range(400)]
    classes = [index % 20 for index in range(400)]
    cells = choose_cells(_guesses(labels, classes, [1.0] * 400))
    assert sum(map(len, cells.values())) == 132
    assert all(row != column for row, column in cells)


def _splits(images: NDArray[Any]) -> DataSplits:
    source = ArraySource(images=images, labels=np.arange(len(images)) % 2)
    spec = DataSpec(
        channels=3,
        height=images.shape[1],
        width=images.shape[2],
        num_classes=2,
        class_names=("a", "b"),
        image_dtype="uint8",
        normalisation="unit",
        task="classification",
    )
    return DataSplits(train=source, validation=source, test=None, spec=spec)


def test_pictures_are_small_and_stop_at_their_bytes(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (200, 300, 150, 3), dtype=np.uint8)
    guesses = _guesses([0, 1] * 100, [1, 0] * 100, list(range(200)))
    candidates = np.arange(200)
    write_class_examples(RunDirectory(tmp_path), data=_splits(images), candidates=candidates, guesses=guesses)
    record = read_json(tmp_path / "examples" / "examples.json")
    assert record["worst"] == list(range(18))
    assert record["samples"][0]["name"] == "validation sample 199"
    sizes = {Image.open(path).size for path in (tmp_path / "examples").glob("*.*g")}
    assert sizes == {(48, 96)}


def test_pictures_beyond_the_bytes_are_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = np.zeros((40, 96, 96, 3), dtype=np.uint8)
    size = len(encode_small(images[0])[1])
    monkeypatch.setattr(class_examples, "_MOST_BYTES", 3 * size)
    guesses = _guesses([0] * 40, [1] * 40, list(range(40)))
    candidates = np.arange(40)
    write_class_examples(RunDirectory(tmp_path), data=_splits(images), candidates=candidates, guesses=guesses)
    record = read_json(tmp_path / "examples" / "examples.json")
    assert len(record["samples"]) == 3
    assert record["worst"] == [0, 1, 2]
    assert record["cells"] == {"0,1": [0, 1, 2]}


def test_overlays_of_an_image_have_one_size(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    image, truth = rng.integers(0, 256, (500, 400, 1), dtype=np.uint8), rng.integers(0, 2, (500, 400))
    example = PredictedMask(
        name="a.tif", image=image, truth=truth, classes=np.zeros((500, 400), dtype=np.uint8)
    )
    scores = {"foreground_hard_dice": 0.25}
    write_overlays(RunDirectory(tmp_path), [(example, scores)], class_names=("back", "cell"))
    (mask,) = read_json(tmp_path / "examples" / "examples.json")["masks"]
    files = [tmp_path / "examples" / mask[what] for what in ("image", "truth", "predicted")]
    assert {Image.open(file).size for file in files} == {(307, 384)}
    assert mask["scores"] == {"hard Dice (mean over foreground classes)": 0.25}
    assert files[1].read_bytes() != files[2].read_bytes()


def test_a_training_leaves_what_its_page_shows(tmp_path: Path) -> None:
    path = tmp_path / "run"
    train_small_run(path, num_epochs=1)
    run = run_contents(path)
    matrix = run["confusion"]
    shown = {cell: len(examples) for cell, examples in matrix["examples"].items()}
    for cell, count in shown.items():
        row, column = map(int, cell.split(","))
        assert count == min(4, matrix["counts"][row][column])
    assert len(shown) == sum(count > 0 for row in matrix["counts"] for count in row)
    losses = [sample["loss"] for sample in run["worst"]]
    assert losses == sorted(losses, reverse=True)
    assert dict(run["environment"])["torch"] == torch.__version__
    origins = {value["option"]: value["origin"] for value in run["recipe"]}
    assert (origins["--seed"], origins["--mixup"]) == ("command line", "default")
    assert "`examples/`" in (path / "README.md").read_text()
    assert run["warnings"] == [message for message in run["warnings"] if "cannot be shown" not in message]
