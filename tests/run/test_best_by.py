"""--best-by: which validation metric chooses the best checkpoint."""

from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drivetrain
from drivetrain.cli.main import main
from drivetrain.core.files import read_json
from drivetrain.recipe.schema import Recipe
from drivetrain.run.loop.validation import Validations
from drivetrain.store.checkpoint import load_checkpoint
from drivetrain.store.directory import RunDirectory, default_run_path
from drivetrain.store.identity import identity_hash, identity_of
from drivetrain.store.listing import describe_run
from drivetrain.store.metrics_file import read_metrics
from drivetrain.tasks.classification_measure import ClassificationEvaluation
from tests.run.segments import segment

DIGITS: dict[str, Any] = {
    "dataset": "digits",
    "model": "cifar_resnet8",
    "limit_train_samples": 96,
    "limit_validation_samples": 60,
    "micro_batch_size": 16,
    "max_updates": 6,
    "evaluate_every": 1,
    "checkpoint_every": 3,
    "keep_checkpoints": 1,
    "device": "cpu",
    "quiet": True,
}


def _validations(path: Path) -> list[dict[str, Any]]:
    return [entry for entry in read_metrics(path / "metrics.jsonl") if entry["event"] == "validation"]


def _best_update(path: Path, metric: str) -> int:
    """The first update whose validation is best, from the events alone."""
    best = max(_validations(path), key=lambda entry: (entry[metric], -entry["update"]))
    return int(best["update"])


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Validations whose loss is best at update 2, and whose accuracy is best at update 4."""
    losses = cycle([0.9, 0.2, 0.5, 0.6, 0.7, 0.8])
    hits = cycle([10, 20, 30, 90, 50, 60])

    def measured(_: Validations, *, regions: bool) -> ClassificationEvaluation:
        confusion = np.zeros((10, 10), dtype=np.int64)
        confusion[0, 0] = right = next(hits)
        confusion[0, 1] = 100 - right
        return ClassificationEvaluation(loss=next(losses), top5_accuracy=0.5, confusion=confusion)

    monkeypatch.setattr(Validations, "_measured", measured)


@pytest.mark.usefixtures("scripted")
@pytest.mark.parametrize(("metric", "chosen"), [("loss", 2), ("accuracy", 4), (None, 4)])
def test_the_metric_chooses_what_is_kept_and_found(tmp_path: Path, metric: str | None, chosen: int) -> None:
    result = drivetrain.train(output_dir=str(tmp_path), best_by=metric, **DIGITS)
    assert result.metrics["best"]["update"] == chosen
    assert result.metrics["best"]["metric"] == (metric or "accuracy")
    kept = {int(path.name) for path in (tmp_path / "checkpoints").iterdir()}
    assert kept == {chosen, 6}
    (row,) = drivetrain.evaluate(tmp_path, checkpoint="best", device="cpu")
    assert row["update"] == chosen
    described = describe_run(RunDirectory(tmp_path))
    assert described["metric"] == (metric or "accuracy")
    assert described["best_validation"] == result.metrics["best"]["value"] == (0.2 if chosen == 2 else 0.9)
    words = "loss" if metric == "loss" else "accuracy"
    way = "lower" if metric == "loss" else "higher"
    assert f"update {chosen}, chosen by {words}" in (tmp_path / "README.md").read_text()
    assert f"({way} is better)" in (tmp_path / "README.md").read_text()


def test_a_class_of_a_segmentation_chooses(tmp_path: Path) -> None:
    options: dict[str, Any] = {"evaluate_every": 1, "best_by": "iou_cell", "learning_rate": 0.5}
    result = segment(tmp_path / "run", **options)
    assert result.metrics["best"]["metric"] == "iou_cell"
    assert result.metrics["best"]["update"] == _best_update(tmp_path / "run", "iou_cell")
    page = (tmp_path / "run" / "README.md").read_text()
    assert "chosen by IoU of cell" in page
    assert page.index("| cell |") < page.index("| membrane |") < page.index("| mean over classes |")
    newest = max((tmp_path / "run" / "checkpoints").iterdir(), key=lambda path: int(path.name))
    assert load_checkpoint(newest).best_update == result.metrics["best"]["update"]


def test_soft_dice_is_another_name_of_dice(tmp_path: Path) -> None:
    result = segment(tmp_path / "run", best_by="soft_dice", max_updates=1)
    assert result.metrics["best"]["metric"] == "dice"


@pytest.mark.usefixtures("scripted")
def test_patience_counts_by_the_metric_that_chooses(tmp_path: Path) -> None:
    result = drivetrain.train(output_dir=str(tmp_path), patience=3, best_by="loss", **DIGITS)
    assert (result.metrics["ended_by"], result.updates) == ("--patience 3", 5)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ["--dataset=digits", "--best-by=iou"],
            "--best-by iou is not a validation metric: classification has accuracy, top5_accuracy, loss; "
            "--best-by accuracy works.",
        ),
        (
            ["--dataset=synthetic-em", "--model=unet_same", "--image-size=32", "--best-by=iou_nucleus"],
            "--best-by iou_nucleus is not a metric of this segmentation, which has dice, hard_dice, iou, "
            "pixel_accuracy, loss, foreground_soft_dice, foreground_hard_dice, foreground_iou, "
            "soft_dice_CLASS, hard_dice_CLASS, iou_CLASS (CLASS: cell, membrane); --best-by dice works.",
        ),
        (["--dataset=synthetic-em", "--model=unet_same", "--best-by=accuracy"], "--best-by dice works."),
        (
            ["--dataset=digits", "--best-by=loss", "--validation=False"],
            "--best-by loss has no effect with --validation False",
        ),
        (["--dataset=synthetic-em", "--model=unet_same", "--stop-at=iou_x=0.5"], "(CLASS: cell, membrane)"),
    ],
)
def test_what_data_do_not_have_is_refused_and_nothing_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str
) -> None:
    assert main(["train", *options, "--device=cpu", f"--output-dir={tmp_path / 'run'}"]) == 2
    assert said in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_without_validation_samples_it_is_said_to_do_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = np.zeros((16, 8, 8, 1), dtype=np.uint8), np.arange(16) % 2
    options: dict[str, Any] = {"max_updates": 1, "micro_batch_size": 8, "device": "cpu"}
    drivetrain.train(data=data, best_by="loss", patience=2, output_dir=str(tmp_path / "run"), **options)
    assert "--best-by loss has no effect: there are no validation samples" in capsys.readouterr().out


def test_a_class_can_end_the_training(tmp_path: Path) -> None:
    result = segment(tmp_path / "run", stop_at="foreground_soft_dice=0.01")
    assert result.metrics["ended_by"] == "--stop-at foreground_soft_dice=0.01"


def test_a_run_keeps_its_metric(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = str(tmp_path / "run")
    begin = ["--dataset=digits", "--model=cifar_resnet8", "--limit-train-samples=64", "--device=cpu"]
    assert main(["train", *begin, "--max-updates=2", f"--output-dir={run}", "--best-by=loss"]) == 0
    capsys.readouterr()
    assert main(["train", *begin, "--max-updates=4", f"--output-dir={run}", "--best-by=accuracy"]) == 2
    assert f"--best-by is accuracy but the run in {run} was started with loss" in capsys.readouterr().err
    assert main(["train", *begin, "--max-updates=4", f"--output-dir={run}"]) == 0
    assert capsys.readouterr().out.count("by validation loss (lower is better)") == 1
    assert read_metrics(tmp_path / "run" / "metrics.jsonl")[-1]["best"]["metric"] == "loss"


def test_a_run_of_an_older_version_goes_on_and_is_found(tmp_path: Path) -> None:
    identity = identity_of(Recipe(), global_batch=32)
    assert identity["best_by"] is None
    older = {name: value for name, value in identity.items() if name != "best_by"}
    assert identity_hash(identity) == identity_hash(older)
    assert identity_hash({**identity, "best_by": "loss"}) != identity_hash(older)
    assert default_run_path("x", identity) == default_run_path("x", older)


@pytest.mark.usefixtures("scripted")
def test_folds_are_judged_by_the_same_metric(tmp_path: Path) -> None:
    result = drivetrain.crossval(output_dir=str(tmp_path), best_by="loss", folds=2, **DIGITS)
    assert result.statistics is not None
    assert result.statistics.metric == "loss"
    record = read_json(tmp_path / "crossval.json")
    for fold in record["per_fold"]:
        run = tmp_path / f"fold-{fold['fold']}"
        assert fold["best"]["update"] == 2
        assert (run / "checkpoints" / str(fold["best"]["update"])).is_dir()
    assert "loss (loss, lower is better)" in record["statistics"]["best"]["what"]
    assert "chosen by loss (lower is better" in (tmp_path / "README.md").read_text()
