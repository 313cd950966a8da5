"""What a page holds of runs in any state; damaged files are named and nothing else is lost."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.report.collect.pages import contents_of, run_contents
from drivetrain.store.heartbeat import write_heartbeat
from drivetrain.store.lock import hold_lock
from tests.report.collect.fabricated import (
    classifier,
    pipelined_segmentation,
    train_event,
    validation_event,
    write_events,
)
from tests.store.written_beats import BEAT

OLD_RUN = Path(__file__).parents[2] / "store" / "old_runs" / "digits-0.1.0"


def test_a_finished_classifier(tmp_path: Path) -> None:
    run = run_contents(classifier(tmp_path / "<b>run"))
    assert (run["name"], run["kind"], run["state"], run["task"]) == (
        "<b>run",
        "training",
        "finished",
        "classification",
    )
    assert run["headline"] == [
        ("best accuracy", "0.7500 (update 10)"),
        ("last accuracy", "0.5000"),
        ("last loss", "0.7000"),
        ("time to train", "2.5 s"),
        ("throughput", "81 images/s"),
    ]
    assert run["command"] == "drivetrain train --config digits --max-updates 20 --seed 7"
    assert run["time"] == [("training steps", 2.0), ("waiting for data", 0.5)]
    assert run["warnings"] == [
        "The last 3 of 83 training samples are skipped.",
        "Class never predicted: dog; more samples of it help.",
        "To save time: only a faster device helps.",
    ]
    assert dict(run["environment"])["torch"] == "2.13.0"
    assert dict(run["facts"])["updates"] == "20 of 20"
    assert {"confusion", "worst", "memory"} <= run.keys()
    assert not {"masks", "timeline", "folds"} & run.keys()


def test_warnings_of_the_log_are_said_once(tmp_path: Path) -> None:
    path = classifier(tmp_path / "run")
    said = ["The last 3 of 83 training samples are skipped.", "the scale fell", "the scale fell"]
    (path / "rank-0.log").write_text("".join(f"warning: {line}\n" for line in said) + "update 1/20\n")
    assert run_contents(path)["warnings"][:2] == said[:2]
    assert run_contents(path)["warnings"].count("the scale fell") == 1


def test_values_of_the_recipe_have_origins(tmp_path: Path) -> None:
    run = run_contents(classifier(tmp_path / "run"))
    values = {value["option"]: value for value in run["recipe"]}
    assert values["--seed"] == {"group": "run", "option": "--seed", "value": "7", "origin": "command line"}
    assert values["--model"]["origin"] == "recipe digits (digits.yaml:2)"
    assert values["--mixup"]["origin"] == "default"


def test_a_rule_gives_its_reason(tmp_path: Path) -> None:
    path = classifier(tmp_path / "run")
    plan = json.loads((path / "plan.json").read_text())
    plan["chosen_by_rules"] = {"num_epochs": "enough for 80 samples"}
    (path / "plan.json").write_text(json.dumps(plan))
    values = {value["option"]: value for value in run_contents(path)["recipe"]}
    assert values["--num-epochs"]["reason"] == "enough for 80 samples"


def test_a_pipelined_segmentation(tmp_path: Path) -> None:
    run = run_contents(pipelined_segmentation(tmp_path / "run"))
    assert [table["title"] for table in run["plan"]] == ["Course", "Model and layout", "Stages"]
    assert len(run["masks"]) == 1
    assert len(run["timeline"]) == 2
    assert run["memory"]["rows"] == [
        ["device 0, predicted", 2.0, 8.0],
        ["device 1, predicted", 2.0, 8.0],
        ["whole process of rank 0, measured", None, 300.0],
    ]
    classes, images = run["tables"]
    assert classes["rows"][0] == ["cell", 0.9]
    assert images["rows"] == [["two.tif", 0.4, None, 0.9], ["one.tif", 0.9, 0.8, 0.5]]


def test_a_run_that_goes_on_and_one_that_was_killed(tmp_path: Path) -> None:
    path = classifier(tmp_path / "run", updates=40)
    write_events(path, [train_event(30, loss=0.5)])
    with (path / "metrics.jsonl").open("a") as file:
        file.write('{"event": "train", "upd')
    with hold_lock(path):
        running = run_contents(path)
    killed = run_contents(path)
    write_heartbeat(path, replace(BEAT, host="elsewhere"))
    elsewhere = run_contents(path)
    assert [run["state"] for run in (running, killed, elsewhere)] == ["running", "stopped", "running"]
    assert killed["headline"] == [
        ("update", "40 of 40"),
        ("training loss", "0.5000"),
        ("throughput", "80 images/s"),
    ]
    assert killed["warnings"] == ["The last 3 of 83 training samples are skipped."]


def test_a_run_that_has_only_begun(tmp_path: Path) -> None:
    path = classifier(tmp_path / "run")
    for entry in (
        "metrics.jsonl",
        "updates.npz",
        "plan.json",
        "data.json",
        "environment.json",
        "origins.json",
    ):
        (path / entry).unlink()
    run = run_contents(path)
    assert not any((run["curves"], run["plan"], run["environment"], run["warnings"]))
    assert run["headline"] == [("update", "0")]


def test_an_older_run_is_shown() -> None:
    run = run_contents(OLD_RUN)
    assert run["headline"][0] == ("best accuracy", "0.1562 (update 4)")
    assert {value["origin"] for value in run["recipe"]} == {"default", "set (where is not known)"}
    assert [picture["source"] for picture in run["timeline"]] == ["predicted"]
    assert not [message for message in run["warnings"] if "cannot be shown" in message]


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"a": 1}\n[', "\x00\x01", "[[[[" * 9999])
@pytest.mark.parametrize(
    "name",
    [
        "recipe.yaml",
        "plan.json",
        "data.json",
        "environment.json",
        "origins.json",
        "metrics.jsonl",
        "updates.npz",
        "confusion.csv",
        "images.csv",
        "profile.json",
        "examples/examples.json",
    ],
)
def test_a_damaged_file_costs_only_its_part(tmp_path: Path, name: str, content: str) -> None:
    path = pipelined_segmentation(tmp_path / "run")
    (path / name).write_text(content)
    run = run_contents(path)
    json.dumps(run, allow_nan=False)
    if name != "metrics.jsonl":
        assert ("throughput", "81 images/s") in run["headline"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("plan.json", {"batch": 3, "stages": "x", "memory": [], "warnings": 5, "schedule": {"name": 1}}),
        ("data.json", {"class_names": 7, "input_kind": "sound", "channels": "x"}),
        ("environment.json", {"device_type": []}),
        ("profile.json", {"traceEvents": [{"ph": "X"}], "otherData": 3}),
        ("examples/examples.json", {"masks": [{"name": 1}], "cells": 3}),
    ],
)
def test_unexpected_values_are_named(tmp_path: Path, name: str, value: dict[str, Any]) -> None:
    path = pipelined_segmentation(tmp_path / "run")
    (path / name).write_text(json.dumps(value))
    run = run_contents(path)
    json.dumps(run, allow_nan=False)
    if name != "environment.json":
        assert [message for message in run["warnings"] if "cannot be shown" in message]


def test_odd_events_are_survived(tmp_path: Path) -> None:
    path = classifier(tmp_path / "run")
    odd = {"event": "validation", "update": 5, "loss": "high", "accuracy": None}
    write_events(path, [train_event(3, loss=None), odd, validation_event(6, loss=[1], accuracy=True)])
    json.dumps(run_contents(path), allow_nan=False)


def test_several_runs_are_compared(tmp_path: Path) -> None:
    first, second = classifier(tmp_path / "a" / "run"), classifier(tmp_path / "b" / "run", learning_rate=0.5)
    page = contents_of([first, second, first])
    assert page["title"] == "2 runs"
    assert [run["name"] for run in page["runs"]] == [str(first), str(second)]
    assert len({run["id"] for run in page["runs"]}) == 2
    settings, results = page["comparison"]["settings"], page["comparison"]["results"]
    assert settings["columns"] == ["option", str(first), str(second)]
    assert settings["rows"] == [["--learning-rate", "default", "0.5"]]
    assert [row[:6] for row in results["rows"]] == [
        [str(path), "finished", 20, 0.3, "accuracy", 0.5] for path in (first, second)
    ]


def test_an_unreadable_recipe_is_said_in_the_comparison(tmp_path: Path) -> None:
    first, second = classifier(tmp_path / "a"), classifier(tmp_path / "b")
    (second / "recipe.yaml").write_text("[")
    page = contents_of([first, second])
    assert "A recipe cannot be read" in str(page["comparison"]["settings"]["rows"][0][0])
    assert str(page["comparison"]["results"]["rows"][1][1]).startswith("unreadable")


def test_one_run_has_no_comparison_and_a_live_page_says_so(tmp_path: Path) -> None:
    path = classifier(tmp_path / "run")
    assert not {"comparison", "live"} & contents_of([path]).keys()
    assert contents_of([path], live=True)["live"]


def test_pictures_of_many_runs_share_the_room_of_a_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paths = [classifier(tmp_path / f"run-{index}") for index in range(2)]
    monkeypatch.setattr("drivetrain.report.collect.pages._PICTURE_BYTES", 30_000 + 2 * 150)
    page = contents_of(paths)
    assert [len(run["worst"]) for run in page["runs"]] == [1, 1]
    assert "1 example pictures are left out" in page["runs"][0]["warnings"][-1]


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match=r"holds no recipe\.yaml"):
        contents_of([tmp_path])
    with pytest.raises(BadInputError, match="names no run"):
        contents_of([])


def test_nothing_imports_torch() -> None:
    check = "import sys, drivetrain.report.collect.pages; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", check], check=False).returncode == 0
