"""Commands after training show their work, each by a name and with an end."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from drivetrain.crossvalidation.job import crossval_resolved
from drivetrain.crossvalidation.reporter import CrossvalReporter
from drivetrain.inference.evaluate.evaluate import evaluate_run
from drivetrain.inference.export.export import export_run
from drivetrain.inference.predict.predict import predict_run
from drivetrain.recipe.load import resolve_recipe
from drivetrain.store.metrics_file import newest_update
from tests.run.segments import segment
from tests.run.shown_work import ShownWork
from tests.run.small_training import SMALL, TrainSmall

pytestmark = pytest.mark.usefixtures("no_pictures")


def test_evaluating_a_run(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", num_epochs=1)
    shown = ShownWork()
    evaluate_run(tmp_path / "run", reporter=shown, device="cpu")
    assert shown.names == shown.ended == ["evaluating update 6"]
    assert shown.counted["evaluating update 6"][-1] == shown.totals["evaluating update 6"] == 40


def test_exporting_a_run(tmp_path: Path, train_small: TrainSmall) -> None:
    train_small(tmp_path / "run", num_epochs=1)
    shown = ShownWork()
    export_run(tmp_path / "run", reporter=shown, formats=("pt2",))
    assert shown.names == shown.ended == ["exporting model.pt2"]


def test_predicting_masks(tmp_path: Path) -> None:
    segment(tmp_path / "run", num_epochs=1, dataset_size=4, validation=False)
    pixels = np.random.default_rng(0).integers(0, 256, (64, 64), dtype=np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    shown = ShownWork()
    predict_run(tmp_path / "run", [tmp_path / "a.png"], output=tmp_path / "out", reporter=shown, device="cpu")
    assert shown.names == shown.ended == ["reading the images", "predicting"]
    assert shown.totals["predicting"] == 1


class ShownFolds(CrossvalReporter):
    """Remembers what was shown of folds."""

    def __init__(self) -> None:
        super().__init__(verbosity="normal", quiet=True)
        self.names: list[str] = []
        self.details: list[str] = []

    def start_progress(self, what: str, *, done: int = 0, total: int | None = None) -> None:
        super().start_progress(what, done=done, total=total)
        self.names.append(what)

    def progress_due(self) -> bool:
        return True

    def progress(self, done: int, detail: str = "") -> None:
        super().progress(done, detail)
        self.details.append(detail)


def test_folds_side_by_side(tmp_path: Path) -> None:
    options = {key: value for key, value in SMALL.items() if key != "limit_validation_samples"}
    options |= {"folds": 2, "parallel_folds": 2, "num_threads": 1, "output_dir": str(tmp_path / "job")}
    shown = ShownFolds()
    crossval_resolved(resolve_recipe(overrides=options), reporter=shown)
    assert shown.names == ["training folds", "drawing figures"]
    assert any(detail.startswith("fold ") and "update" in detail for detail in shown.details)


@pytest.mark.parametrize(
    ("content", "update"),
    [
        (None, 0),
        (b"", 0),
        (b'{"event": "train", "update": 4}\n', 4),
        (b'{"event": "train", "update": 4}\n{"event": "train", "upd', 4),
        (b"x" * 100_000 + b'\n{"update": 7}\n', 7),
    ],
)
def test_the_newest_update_is_that_of_the_last_whole_event(
    content: bytes | None, update: int, tmp_path: Path
) -> None:
    path = tmp_path / "metrics.jsonl"
    if content is not None:
        path.write_bytes(content)
    assert newest_update(path) == update
