"""`plan --search`, `--stages auto` and `--memory-limit`, as a user types them."""

import json
from pathlib import Path
from typing import Any

import pytest

from drivetrain.cli.main import main
from drivetrain.recipe.load import read_recipe_yaml

SMALL = ["--model", "toy_model", "--dataset", "synthetic", "--dataset-size", "64", "--micro-batch-size", "4"]
BATCH = ["--global-batch-size", "16", "--device", "cpu"]


def _plan(capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, Any]:
    assert main(["plan", *SMALL, *BATCH, *options, "--json"]) == 0
    plan: dict[str, Any] = json.loads(capsys.readouterr().out)
    return plan


def test_a_search_prints_ten_rows_and_plans_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    plan = _plan(capsys, "--search", "--devices", "4")
    best = plan["search"]["best"]
    assert 1 < len(best) <= 10
    assert [row["seconds_per_update"] for row in best] == sorted(row["seconds_per_update"] for row in best)
    assert plan["layout"]["ranks"] == best[0]["devices"]
    assert plan["batch"]["global"] == 16
    assert best[0]["trades"] == "the fastest"
    assert best[0]["memory"] == "exact"


def test_the_chosen_layout_is_a_recipe_like_any_other(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    saved = tmp_path / "recipe.yaml"
    options = ["--stages", "auto", "--pipeline-schedule", "gpipe", "--devices", "2"]
    plan = _plan(capsys, *options, "--memory-limit", "410.6MB", "--save-recipe", str(saved))
    assert all(peak <= 410_600_000 for peak in plan["search"]["best"][0]["peak_bytes"])
    recipe = read_recipe_yaml(saved)
    assert recipe["replicas"] == plan["layout"]["replicas"]
    assert main(["plan", "--config-path", str(saved), "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["layout"] == plan["layout"]
    assert again["batch"] == plan["batch"]


def test_memory_is_that_of_the_plan(capsys: pytest.CaptureFixture[str]) -> None:
    plan = _plan(capsys, "--stages", "auto", "--replicas", "1", "--devices", "2", "--memory-limit", "410.6MB")
    devices = [device["peak_bytes"] for device in plan["devices"]]
    assert plan["search"]["best"][0]["peak_bytes"] == devices


def test_a_number_that_was_typed_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    plan = _plan(capsys, "--search", "--stages", "2", "--devices", "2")
    assert {row["stages"] for row in plan["search"]["best"]} == {2}
    assert plan["layout"]["stages"] == 2


def test_below_every_layout_the_smallest_is_told_and_works(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["plan", *SMALL, *BATCH, "--search", "--devices", "2"]
    assert main([*options, "--memory-limit", "1kB"]) == 2
    said = capsys.readouterr().err
    assert "--memory-limit 1e-06" not in said
    size = said.partition("use --memory-limit ")[2].partition(",")[0]
    assert main([*options, "--memory-limit", size]) == 0


def test_a_limit_without_a_search_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", *SMALL, "--memory-limit", "8GB"]) == 2
    assert "has no effect without --fit, --stages auto" in capsys.readouterr().err


def test_a_model_that_cannot_be_traced_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    own = ["--model", "tests.planner.search.untraceable:branching", "--dataset", "digits", "--device", "cpu"]
    assert main(["plan", *own, "--search", "--devices", "2"]) == 2
    said = capsys.readouterr().err
    assert "cannot be split into stages" in said
    assert said.count("\n") == 1


def test_a_training_keeps_the_layout_that_it_began_with(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["train", "--config", "digits", "--device", "cpu", "--max-updates", "1", "--stages", "auto"]
    assert main([*options, "--devices", "1"]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    recipe = read_recipe_yaml(run / "recipe.yaml")
    assert (recipe["stages"], recipe["replicas"]) == (None, 1)
    capsys.readouterr()
    assert main([*options, "--devices", "2"]) == 0
    assert "already finished" in capsys.readouterr().out
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [run.name]


@pytest.mark.parametrize(
    ("options", "works"),
    [
        (["--search", "--stages", "8", "--devices", "2"], "--devices 8 works"),
        (["--search", "--stages", "2", "--replicas", "3", "--devices", "4"], "--devices 6 works"),
        (["--search", "--devices", "17", "--device-file", "DEVICE"], "--devices 16 works"),
    ],
)
def test_more_devices_than_there_are_is_refused(
    options: list[str], works: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(
        "name: own\nmemory_bytes: 80 GB\nflops: {float32: 19.5e12}\nbytes_per_s: 2e12\n"
        "devices_per_host: 8\nhosts: 2\nlinks: {device: {bandwidth: 3e11, latency: 1e-5}}\n"
    )
    words = [str(file) if word == "DEVICE" else word for word in options]
    assert main(["plan", *SMALL, *BATCH, *words]) == 2
    assert works in capsys.readouterr().err
