"""`drivetrain plan`, as a user calls it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli.main import main
from drivetrain.cli.plan import parse_updates
from drivetrain.core.errors import BadInputError

DATA = ["--model", "cifar_resnet8", "--dataset", "synthetic", "--dataset-size", "50000"]
BATCH = ["--micro-batch-size", "8", "--gradient-accumulation-count", "8"]
SMALL = [*DATA, *BATCH, "--num-epochs", "6"]


def _run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "import sys; from drivetrain.cli.main import main; sys.exit(main())"]
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    return subprocess.run(
        [*command, "plan", "--measure", "off", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def _json(*arguments: str, cwd: Path) -> dict[str, Any]:
    done = _run(*arguments, "--json", cwd=cwd)
    assert done.returncode == 0, done.stderr
    plan: dict[str, Any] = json.loads(done.stdout)
    return plan


def test_json_holds_the_plan_and_nothing_is_written(tmp_path: Path) -> None:
    plan = _json(
        *SMALL, "--logs-per-epoch", "10", "--learning-rate", "0.5", "--lr-at", "0, 4686", cwd=tmp_path
    )
    assert plan["batch"]["global"] == 64
    assert plan["epoch"]["weight_updates"] == 781
    assert plan["execution"] == {"micro_batches": 568, "weight_updates": 71, "logs_per_epoch": 11}
    assert plan["learning_rate"] == {"0": 0.5, "4686": 0.0}
    assert plan["learning_rate_origin"] == "--learning-rate 0.5"
    assert any("--logs-per-epoch 10" in warning for warning in plan["warnings"])
    assert list(tmp_path.iterdir()) == []


def test_text_is_readable_when_piped(tmp_path: Path) -> None:
    done = _run(*SMALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "64 samples per weight update" in done.stdout
    assert "warning: The last 16 of 50000 training samples" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        pytest.param(["--logs-per-epoch", "-1"], "--logs-per-epoch", id="case-30"),
        pytest.param(
            ["--logs-per-epoch", ".25"],
            "Logging once every 4.0 epochs does not divide 6 epochs evenly",
            id="case-31",
        ),
        pytest.param(["--lr-schedule", "hygge"], "hygge", id="case-40"),
        pytest.param(["--global-batch-size", "10"], "--global-batch-size", id="case-120"),
        pytest.param(["--steps-per-execution", "30"], "--steps-per-execution 3", id="uneven-execution"),
        pytest.param(["--lr-at", "1,two"], "--lr-at 1,two", id="bad-updates"),
    ],
)
def test_bad_input_ends_with_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = _run(*SMALL, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("text", "updates"), [("", []), ("0", [0]), ("0,100,2000", [0, 100, 2000]), (" 1 , 2 ", [1, 2])]
)
def test_updates_are_read(text: str, updates: list[int]) -> None:
    assert parse_updates(text) == updates


@pytest.mark.parametrize("text", [",", "1,,2", "-1", "1.5", "x", "²"])
def test_bad_updates_are_refused(text: str) -> None:
    with pytest.raises(BadInputError, match="--lr-at 0,100,1000"):
        parse_updates(text)


@pytest.mark.parametrize("name", ["mnist_tutorial", "digits", "cifar_resnet8_fast", "resnet8_test"])
def test_recipes_are_shown_as_tables(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--measure", "off", "--config", name]) == 0
    shown = capsys.readouterr().out
    assert ("statistics over" in shown) == (name != "mnist_tutorial")


def test_a_laptop_plans_for_sixteen_devices_of_two_hosts(tmp_path: Path) -> None:
    plan = _json(*SMALL, "--replicas", "16", "--device-file", "a100-80gb", cwd=tmp_path)
    assert plan["estimate"]["source"] == "described"
    assert plan["images_per_second"] == pytest.approx(1024 / plan["seconds_per_update"])
    assert plan["devices"][0]["available_bytes"] == 80 * 10**9
    assert plan["devices"][0]["fits"] is True
    assert plan["estimate"]["all_reduce"]["links"] == "described"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--memory-limit", "much"], "--memory-limit much is not a size of memory; --memory-limit 8GB works"),
        (["--device-file", "nothing.yaml"], "--device-file nothing.yaml is neither a file nor"),
        (["--measure", "maybe"], "--measure"),
    ],
)
def test_bad_options_of_the_estimate_end_with_2(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = _run(*SMALL, *arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr


def test_another_device_cannot_be_measured_here(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--config", "digits", "--measure", "on", "--device-file", "h200"]) == 2
    said = capsys.readouterr().err
    assert "--measure on measures this machine, and --device-file describes another" in said
