"""`drivetrain bench suite` and `bench compare` of its results, as a user calls them."""

import csv
import json
from functools import partial
from pathlib import Path

import pytest

from drivetrain.bench.suite import run
from drivetrain.bench.suite.folder import Outcome
from drivetrain.cli.main import main

Capture = pytest.CaptureFixture[str]

SMALL = [
    *("--image-size", "8"),
    *("--warmup-steps", "1"),
    *("--repeats", "1"),
    *("--seconds", "0.001"),
    *("--num-threads", "1"),
]
SUITE = ["bench", "suite", "--models", "cifar_resnet8", "--work", "infer", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_suite_from_its_cases_to_its_figures(tmp_path: Path, capsys: Capture) -> None:
    one = [*SUITE, *SMALL, "--output", "a", "--variants", "eager", "--batch-sizes"]
    assert main([*one, "1"]) == 0
    with Path("a/suite.csv").open() as file:
        (row,) = csv.DictReader(file)
    assert (row["status"], row["parameters"], row["batch_size"]) == ("measured", "75290", "1")
    assert float(row["images_per_second"]) > 0
    found = json.loads(Path("a/suite.json").read_text())
    assert found["command"].startswith("drivetrain bench suite --models cifar_resnet8 --batch-sizes 1 --work")
    capsys.readouterr()
    assert main([*one, "1"]) == 0
    assert "1 of 1 cases have been measured before" in capsys.readouterr().out
    assert main(["bench", "compare", "a", "a/suite.json", "--figure", "f", "--output", "r.json"]) == 0
    assert "1.00x" in capsys.readouterr().out
    assert json.loads(Path("r.json").read_text())["pairs"][0]["cases"][0]["speedup"] == 1.0
    assert main(["bench", "compare", "a", "--figure", "g.png", "--intensity", "byte"]) == 2
    assert "has no effect on rooflines" in capsys.readouterr().err
    assert main(["bench", "compare", "a", "--figure", "g.png"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_file()) == [
        "f.png",
        "f.svg",
        "g-roofline-cpu.png",
        "g-roofline-cpu.svg",
        "r.json",
    ]
    assert main([*one, "1", "--precision", "16.16"]) == 2
    assert "results of --precision auto, not of 16.16" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([*SUITE, "--models", "resnet19"], "--model resnet19 is not a known model"),
        ([*SUITE, "--batch-sizes", "0"], "--batch-sizes 0"),
        ([*SUITE, "--variants", "captured"], "--variants eager works"),
        ([*SUITE, "--variants", "fast"], "must be one of eager, captured, compiled"),
        ([*SUITE, "--device", "tpu"], "--device tpu is not a device of this machine"),
        ([*SUITE, "--time-limit", "0"], "--time-limit 0 must be a number above 0"),
        ([*SUITE, "--epoch-images", "0"], "--epoch-images 0 must be a number above 0"),
        ([*SUITE, "--seconds", "0"], "--seconds 1 works"),
        ([*SUITE, "--seconds", "inf"], "--seconds 1 works"),
        ([*SUITE, "--seconds", "nan"], "--seconds 1 works"),
        ([*SUITE, "--time-limit", "inf"], "--time-limit 1000 works"),
        ([*SUITE, "--image-size", "0"], "--image-size 224 works"),
        ([*SUITE, "--precision", "99"], "--precision is"),
        ([*SUITE, "--num-threads", "0"], "--num-threads is 0"),
        (["bench", "compare", "."], "no suite.json"),
        (["bench", "compare", ".", "--intensity", "byte"], "--intensity byte has no effect without --figure"),
        (
            ["bench", "compare", "a.json", "a.json", "--figure"],
            "--figure bench-suite is for results of suites",
        ),
    ],
)
def test_what_cannot_work_is_refused_before_anything_is_written(
    tmp_path: Path, capsys: Capture, arguments: list[str], said: str
) -> None:
    result = {"benchmark": "train", "machine": {}, "workload": {}, "settings": {}, "entries": []}
    (tmp_path / "a.json").write_text(json.dumps(result))
    assert main(arguments) == 2
    assert said in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_suite_that_measured_nothing_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> Outcome:
        return Outcome(status="failed", why="it is broken")

    monkeypatch.setattr(run, "run_suite", partial(run.run_suite, measure=fail))
    assert main([*SUITE, *SMALL, "--variants", "eager", "--batch-sizes", "1", "--output", "a"]) == 1
    assert Path("a/suite.csv").is_file()
