"""What a page holds of a cross-validation."""

import json
from pathlib import Path

from drivetrain.core.files import write_json
from drivetrain.recipe.load import recipe_to_yaml, resolve_recipe
from drivetrain.report.collect.pages import contents_of, run_contents
from tests.report.collect.fabricated import (
    classifier,
    pipelined_segmentation,
    summary_event,
    train_event,
    validation_event,
    write_events,
)


def _job(path: Path, *, accuracies: tuple[float, ...], status: str = "finished") -> Path:
    for number, accuracy in enumerate(accuracies):
        fold = classifier(path / f"fold-{number}", folds=3, fold=number)
        events = [train_event(10, loss=0.5), validation_event(10, loss=0.5, accuracy=accuracy / 2)]
        events += [validation_event(20, loss=0.4, accuracy=accuracy), summary_event(20)]
        write_events(fold, events)
    recipe = resolve_recipe(config="digits", overrides={"folds": 3, "seed": 7}).recipe
    (path / "crossval-recipe.yaml").write_text(recipe_to_yaml(recipe))
    write_json(path / "crossval.json", {"status": status, "folds": 3, "identity": {}})
    return path


def test_a_finished_job_has_folds_and_their_spread(tmp_path: Path) -> None:
    run = run_contents(_job(tmp_path / "job", accuracies=(0.6, 0.7, 0.8)))
    assert (run["kind"], run["state"], run["task"]) == ("cross-validation", "finished", "classification")
    assert run["headline"] == [("last accuracy", "0.7000 ± 0.1000"), ("best accuracy", "0.7000 ± 0.1000")]
    assert run["command"] == "drivetrain crossval --config digits --folds 3 --seed 7"
    table, spread = run["folds"]["table"], run["folds"]["spread"]
    assert table["columns"] == [
        "fold",
        "update",
        "last loss",
        "last accuracy",
        "best update",
        "best loss",
        "best accuracy",
    ]
    assert table["rows"][2] == [2, 20, 0.4, 0.8, 20, 0.4, 0.8]
    assert spread["rows"][1] == ["accuracy", "last", 0.7, 0.1]


def test_the_curves_are_those_of_the_folds_with_their_mean(tmp_path: Path) -> None:
    run = run_contents(_job(tmp_path / "job", accuracies=(0.6, 0.7, 0.8)))
    curves = {curve["id"]: curve for curve in run["curves"]}
    assert list(curves) == ["loss", "accuracy", "images_per_second"]
    assert [line["name"] for line in curves["accuracy"]["series"]] == [
        "fold 0",
        "fold 1",
        "fold 2",
        "mean over the folds",
    ]
    assert curves["accuracy"]["series"][3] == {
        "name": "mean over the folds",
        "x": [10, 20],
        "y": [0.35, 0.7],
    }


def test_the_samples_of_all_folds_make_one_confusion_matrix(tmp_path: Path) -> None:
    path = _job(tmp_path / "job", accuracies=(0.6, 0.7, 0.8))
    (path / "fold-2" / "confusion.csv").unlink()
    run = run_contents(path)
    assert run["confusion"]["counts"] == [[4, 0, 0], [2, 2, 0], [0, 0, 4]]
    mistakes = [sample["name"] for sample in run["confusion"]["examples"]["1,0"]]
    assert mistakes == [f"fold {number}: a<script>.png" for number in range(3)]
    assert [sample["loss"] for sample in run["worst"]] == [2.5, 2.5, 2.5, 0.1, 0.1, 0.1]
    assert all(sample["image"].startswith("data:image/png;base64,") for sample in run["worst"])


def test_the_masks_of_all_folds_lie_side_by_side(tmp_path: Path) -> None:
    path = tmp_path / "job"
    for number in range(2):
        pipelined_segmentation(path / f"fold-{number}")
    write_json(path / "crossval.json", {"status": "unfinished", "folds": 2, "identity": {}})
    run = run_contents(path)
    assert [mask["name"].partition(":")[0] for mask in run["masks"]] == ["fold 0", "fold 1"]
    assert "confusion" not in run


def test_an_unfinished_job_says_how_far_its_folds_are(tmp_path: Path) -> None:
    path = _job(tmp_path / "job", accuracies=(0.6, 0.7), status="unfinished")
    write_events(path / "fold-1", [validation_event(10, loss=0.5, accuracy=0.3)])
    run = run_contents(path)
    assert run["state"] == "stopped"
    assert run["headline"] == [("progress", "1 of 3 folds finished")]
    assert run["folds"]["table"]["rows"] == [[0, "finished", 20, 0.6], [1, "stopped", 20, 0.3]]
    assert run["folds"]["spread"]["rows"] == []


def test_a_job_without_a_fold_is_shown(tmp_path: Path) -> None:
    write_json(tmp_path / "crossval.json", {"status": "unfinished", "folds": 3, "identity": {}})
    run = run_contents(tmp_path)
    assert run["headline"] == [("progress", "0 of 3 folds finished")]
    assert run["curves"] == []
    assert "folds" not in run


def test_what_all_folds_say_is_said_once(tmp_path: Path) -> None:
    path = _job(tmp_path / "job", accuracies=(0.6, 0.7, 0.8))
    write_events(
        path / "fold-1", [validation_event(20, loss=0.4, accuracy=0.7), summary_event(20, findings=[])]
    )
    run = run_contents(path)
    assert run["warnings"].count("The last 3 of 83 training samples are skipped.") == 1
    assert not any("To save time" in message for message in run["warnings"])
    assert "Folds 0, 2: Class never predicted: dog; more samples of it help." in run["warnings"]


def test_a_fold_alone_is_a_run_with_the_name_of_its_job(tmp_path: Path) -> None:
    run = run_contents(_job(tmp_path / "job", accuracies=(0.6, 0.7, 0.8)) / "fold-1")
    assert (run["name"], run["kind"]) == ("job/fold-1", "training")
    assert run["command"].endswith("--folds 3 --fold 1 --max-updates 20 --seed 7")


def test_damaged_records_are_named(tmp_path: Path) -> None:
    path = _job(tmp_path / "job", accuracies=(0.6, 0.7, 0.8))
    (path / "crossval.json").write_text("{")
    (path / "fold-1" / "metrics.jsonl").write_text("")
    run = run_contents(path)
    json.dumps(run, allow_nan=False)
    assert any("crossval.json" in message for message in run["warnings"])


def test_a_job_stands_beside_a_run(tmp_path: Path) -> None:
    page = contents_of([_job(tmp_path / "job", accuracies=(0.6, 0.8, 0.7)), classifier(tmp_path / "run")])
    assert [run["kind"] for run in page["runs"]] == ["cross-validation", "training"]
    assert ["--folds", "3", "default"] in page["comparison"]["settings"]["rows"]
