"""Which validation samples a classifier's page shows, and what curves say."""

from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.figure import Figure

import drivetrain
from drivetrain.core.files import write_atomically
from drivetrain.run.summary import pictures
from drivetrain.run.summary.pictures import choose_shown, draw_curves
from drivetrain.store.directory import RunDirectory
from drivetrain.store.metrics_file import MetricsLog
from drivetrain.tasks.classification_measure import Guesses
from tests.number_data import Perceptron, table


def _guesses(labels: list[int], classes: list[int], confidences: list[float]) -> Guesses:
    return Guesses(
        labels=np.array(labels, dtype=np.int32),
        classes=np.array(classes, dtype=np.int32),
        confidences=np.array(confidences, dtype=np.float32),
        losses=np.zeros(len(labels), dtype=np.float32),
    )


def test_every_true_class_has_its_turn_with_its_surest_mistake() -> None:
    labels = [0] * 40 + [1] * 40 + [2] * 3
    classes = [1] * 40 + [0] * 40 + [0, 0, 2]
    confidences = [0.3 + index / 100 for index in range(40)] * 2 + [0.5, 0.9, 0.9]
    chosen = choose_shown(_guesses(labels, classes, confidences), count=8)
    assert chosen.tolist() == [39, 79, 81, 38, 78, 80, 37, 77]


def test_right_answers_fill_the_page_from_every_class() -> None:
    guesses = _guesses([0, 0, 1, 1, 2], [0, 0, 1, 0, 2], [0.9, 0.8, 0.7, 0.6, 0.5])
    assert choose_shown(guesses, count=4).tolist() == [3, 0, 2, 4]


def test_mistakes_are_looked_for_in_all_validation_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More samples than were looked at once, sorted by class, and a model that has learned nothing."""
    seen: list[Guesses] = []
    titles: list[str] = []
    labels = np.sort(np.arange(2000) % 10)
    images = np.random.default_rng(0).integers(0, 255, (2000, 8, 8, 1), dtype=np.uint8)

    def grid(*given: object, title: str, **_: object) -> None:
        chosen = given[3]
        assert isinstance(given[2], Guesses)
        assert isinstance(chosen, np.ndarray)
        seen.append(
            _guesses([int(given[2].labels[i]) for i in chosen], [0] * len(chosen), [0.0] * len(chosen))
        )
        titles.append(title)

    monkeypatch.setattr(pictures, "_draw_grid", grid)
    drivetrain.train(
        data=(images[::20], labels[::20]),
        validation_data=(images, labels),
        output_dir=str(tmp_path / "run"),
        max_updates=1,
        device="cpu",
        quiet=True,
    )
    counts = np.bincount(seen[0].labels, minlength=10)
    # One class is what the model always says, so that of it there may be no mistake.
    assert (counts[counts > 0] >= 3).all()
    assert (counts > 0).sum() >= 9
    assert "mistakes on 2000 validation samples" in titles[0]


@pytest.mark.parametrize(
    ("classes", "title"),
    [
        ([0], "No mistakes on 1 validation sample; some correct ones of every class"),
        ([1], "The only mistake on 1 validation sample"),
        ([0, 1], "The only mistake on 2 validation samples, then correct ones"),
        ([1, 1], "All 2 mistakes on 2 validation samples, by true class in turn"),
    ],
)
def test_titles_count(classes: list[int], title: str) -> None:
    samples = len(classes)
    guesses = _guesses([0] * samples, classes, [0.9] * samples)
    assert pictures._title_of_mistakes(guesses, there=samples, shown=samples) == title


def _drawn_curves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, class_names: list[str]) -> list[list[str]]:
    """What the legends of the panels of a segmentation's curves say."""
    run = RunDirectory(tmp_path)
    write_atomically(run.updates, _npz(loss=[0.5, 0.25], dice=[0.5, 0.75]))
    log = MetricsLog(run.metrics)
    scores = [(score, name) for score in ("soft_dice", "iou") for name in class_names]
    by_class = {f"{score}_{name}": 1 / (2 + class_names.index(name)) for score, name in scores}
    for update in (1, 2):
        log.append("validation", update=update, loss=0.5, dice=0.5, iou=0.5, **by_class)
    log.append("summary", update=2, best={"metric": "iou_b", "value": 0.5, "update": 1})
    legends: list[list[str]] = []
    titles: list[str] = []
    close = plt.close

    def kept(figure: Figure) -> None:
        legends.extend([axis.get_legend_handles_labels()[1] for axis in figure.axes])
        titles.append(str(figure.get_suptitle()))
        close(figure)

    monkeypatch.setattr(plt, "close", kept)
    draw_curves(run)
    assert "best: update 1, chosen by IoU of b: 0.5000 (higher is better)" in titles[0]
    return legends


def test_curves_show_every_class_and_call_the_mean_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mean = "validation (mean over classes)"
    assert _drawn_curves(tmp_path, monkeypatch, ["b", "a"]) == [
        ["each update", "training", "validation"],
        ["each update", "training (mean over classes)", "validation, b", "validation, a", mean],
        ["validation, b", "validation, a", mean],
    ]


def test_of_many_classes_curves_show_the_lowest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["b", *(f"class {number}" for number in range(10))]
    labels = _drawn_curves(tmp_path, monkeypatch, names)[2]
    assert labels[:-1] == [f"validation, class {number} (among the lowest)" for number in range(3, 10)]


def _npz(**columns: list[float]) -> bytes:
    content = BytesIO()
    arrays: dict[str, Any] = {name: np.array(values) for name, values in columns.items()}
    np.savez(content, **arrays)
    return content.getvalue()


def test_rows_of_a_table_are_not_drawn(tmp_path: Path) -> None:
    drivetrain.train(
        model=Perceptron,
        data=table(),
        validation_fraction=0.25,
        output_dir=str(tmp_path / "run"),
        num_epochs=1,
        device="cpu",
        quiet=True,
    )
    assert (tmp_path / "run" / "confusion.png").is_file()
    assert not (tmp_path / "run" / "predictions").exists()
