"""`plan --pictures`: which files it writes, and when it refuses to."""

import json
from pathlib import Path
from unittest import mock

import pytest

from drivetrain.cli.main import main
from drivetrain.pictures.update.picture import UpdatePicture
from drivetrain.planner.drawing import draw_plan

RESNET8 = ["--model=cifar_resnet8", "--dataset=synthetic", "--dataset-size=64", "--micro-batch-size=2"]
PLAN = ["plan", "--measure=off", *RESNET8, "--gradient-accumulation-count=4", "--device=cpu"]
FILES = {"timeline.png", "timeline.svg", "timeline.json", "memory.png"}


@pytest.mark.parametrize(("layout", "devices"), [([], 1), (["--stages=2"], 2)])
def test_a_plan_has_its_pictures_and_trace(
    layout: list[str], devices: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*PLAN, *layout, "--pictures", str(tmp_path / "new")]) == 0
    assert {path.name for path in (tmp_path / "new").iterdir()} == FILES
    assert "timeline.png" in capsys.readouterr().out
    trace = json.loads((tmp_path / "new" / "timeline.json").read_text())
    events = trace["traceEvents"]
    assert sum(event["ph"] == "X" for event in events) == 2 * 4 * devices
    assert {event["name"] for event in events if event["ph"] == "C"} == {
        f"memory of device {device}" for device in range(devices)
    }
    assert "FLOPs" in trace["otherData"]["time"]


def test_measured_times_are_drawn_in_seconds(tmp_path: Path) -> None:
    options = ["--measure=on", "--stages=2", "--pictures", str(tmp_path)]
    assert main([*(word for word in PLAN if word != "--measure=off"), *options, "--json"]) == 0
    trace = json.loads((tmp_path / "timeline.json").read_text())
    assert trace["otherData"]["time"] == "seconds, measured"
    drawn = [event["name"] for event in trace["traceEvents"] if event["ph"] == "X"]
    # The passes of both devices, and their optimiser steps.
    assert len(drawn) == 2 * (2 * 4 + 1)


def test_the_title_tells_time_and_bubble_and_json_stays_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    drawn: list[UpdatePicture] = []
    with mock.patch.object(draw_plan, "draw_update", lambda _, picture, **__: drawn.append(picture)):
        assert main([*PLAN, "--stages=2", "--pictures", str(tmp_path), "--json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    bubble = f"{plan['schedule']['bubble']:.1%}"
    assert {picture.title.partition(":")[0] for picture in drawn} == {"cifar_resnet8, 1f1b, 4 micro-batches"}
    assert all(f"per update, bubble {bubble}" in picture.title for picture in drawn)
    assert [picture.limit_bytes for picture in drawn] == [None, None]


def test_a_file_that_is_there_is_never_overwritten(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "memory.png").write_bytes(b"mine")
    assert main([*PLAN, "--pictures", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "memory.png exists already; name a new folder" in said
    assert [path.name for path in tmp_path.iterdir()] == ["memory.png"]
    (tmp_path / "memory.png").write_bytes(b"")
    draw_plan.check_picture_folder(tmp_path)


@pytest.mark.parametrize("inside", ["file", "file/folder"])
def test_a_folder_that_cannot_be_made_is_refused_first(
    inside: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_bytes(b"")
    assert main([*PLAN, "--pictures", str(tmp_path / inside)]) == 2
    assert "file is a file; --pictures new-folder works" in capsys.readouterr().err


def test_a_folder_that_the_system_refuses_is_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with mock.patch.object(Path, "mkdir", side_effect=PermissionError(13, "Permission denied")):
        assert main([*PLAN, "--pictures", str(tmp_path / "new")]) == 2
    assert "cannot be made (Permission denied); --pictures new-folder works" in capsys.readouterr().err
