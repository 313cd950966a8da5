"""The schedule of an update, simulated from the plan and measured in profile.json."""

from pathlib import Path

import pytest

from drivetrain.core.files import read_json, write_json
from drivetrain.report.collect.stored_run import read_run
from drivetrain.report.collect.timelines import timelines_of
from tests.report.collect.fabricated import classifier, pipelined_segmentation

# Stage 0 takes 3/4 of a forward pass and twice as long backward; stage 1, which recomputes, three times.
PASSES_US = 4 * 50.0
RELATIVE = 1 + 2 * 0.75 + 3 * 0.25


def test_a_pipeline_is_predicted_and_measured(tmp_path: Path) -> None:
    predicted, measured = timelines_of(read_run(pipelined_segmentation(tmp_path / "run")))
    assert [predicted["source"], measured["source"]] == ["predicted", "measured"]
    assert [row["device"] for row in predicted["rows"]] == ["device 0", "device 1"]
    assert [len(row["actions"]) for row in predicted["rows"]] == [8, 8]
    kind, label, start_us, duration_us = predicted["rows"][0]["actions"][0]
    assert (kind, label, start_us) == ("forward", "F0@0", 0.0)
    assert duration_us == pytest.approx(0.75 * PASSES_US / RELATIVE, abs=0.05)


def test_the_last_recorded_update_is_shown_from_its_beginning(tmp_path: Path) -> None:
    measured = timelines_of(read_run(pipelined_segmentation(tmp_path / "run")))[1]
    assert measured["title"] == "update 3, measured"
    assert measured["rows"] == [
        {
            "device": "device 0",
            "actions": [("forward", "F0@0", 0.0, 50.0), ("backward", "B0@0", 100.0, 50.0)],
        },
        {
            "device": "device 1",
            "actions": [("forward", "F0@1", 10.0, 50.0), ("backward", "B0@1", 110.0, 50.0)],
        },
    ]
    assert ("idle share of devices", "25.0%") in measured["facts"]


def test_without_a_profile_times_are_relative(tmp_path: Path) -> None:
    path = pipelined_segmentation(tmp_path / "run")
    (path / "profile.json").unlink()
    (predicted,) = timelines_of(read_run(path))
    assert predicted["rows"][0]["actions"][0][3] == 750.0
    assert predicted["facts"][2][1].startswith("relative: 1 ms")


def test_a_model_in_one_piece_has_no_timeline(tmp_path: Path) -> None:
    assert timelines_of(read_run(classifier(tmp_path / "run"))) == []


def test_a_damaged_profile_leaves_the_prediction(tmp_path: Path) -> None:
    path = pipelined_segmentation(tmp_path / "run")
    (path / "profile.json").write_text('{"traceEvents": [')
    run = read_run(path)
    assert [picture["source"] for picture in timelines_of(run)] == ["predicted"]
    assert "The measured timeline cannot be shown" in run.problems[0]


def test_an_unknown_schedule_leaves_the_measurement(tmp_path: Path) -> None:
    path = pipelined_segmentation(tmp_path / "run")
    plan = read_json(path / "plan.json")
    write_json(path / "plan.json", plan | {"schedule": {"name": "future", "micro_batches": 4}})
    assert [picture["source"] for picture in timelines_of(read_run(path))] == ["measured"]
