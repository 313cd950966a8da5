"""Figures, their files, and what is refused before anything is measured."""

import csv
import json
from dataclasses import replace
from pathlib import Path

import pytest

from drivetrain.bench.repetition import Repetition
from drivetrain.bench.result import FIGURES, BenchResult, Entry, median_of, one_median, percentiles
from drivetrain.bench.result_table import check_output, result_lines, write_result
from drivetrain.core.errors import BadInputError


@pytest.fixture
def result() -> BenchResult:
    figures = {"images_per_second": 12345.6, "p50_seconds": 0.0125, "peak_memory_bytes": 3 * 2.0**20}
    repeats = [{"images_per_second": 12345.6, "step_seconds": [0.0125, 0.0125]}]
    return BenchResult(
        benchmark="train",
        command="drivetrain bench train",
        machine={"cpu": "a processor", "cores": 2},
        workload={"model": "cifar_resnet8", "model_width": None, "image": "1x8x8"},
        settings={"steps": 2, "batch_sizes": [1, 16], "num_workers": None},
        recipe={"dataset": "digits"},
        entries=[
            Entry(name="train", figures=figures, repeats=repeats, states={"compiled": "yes"}),
            Entry(name="other", figures={"images_per_second": 1.0}),
        ],
        peak={"dtype": "float32", "tflops": 0.2, "copy_gb_per_second": 10.0},
        notes=["a note"],
    )


def test_percentiles_lie_between_neighbours() -> None:
    found = percentiles([5.0, 1.0, 2.0, 3.0, 4.0])
    assert found == pytest.approx(
        {"p50_seconds": 3.0, "p90_seconds": 4.6, "p95_seconds": 4.8, "p99_seconds": 4.96}
    )
    assert set(percentiles([7.0]).values()) == {7.0}


def test_the_median_of_repeats() -> None:
    assert median_of([{"x": 3}, {"x": 1}, {"x": 9}], "x") == 3.0


def test_numbers_have_units_and_no_exponents() -> None:
    assert FIGURES["images_per_second"].text(267700.4) == "267700"
    assert FIGURES["p50_seconds"].text(0.01234567) == "12.35"
    assert FIGURES["peak_memory_bytes"].text(2.0**20) == "1"


def test_speed_and_seconds_of_an_even_number_of_repeats_agree() -> None:
    repeats = [{"images_per_second": 8 / seconds, "s": seconds} for seconds in (1.0, 4.0)]
    assert one_median(repeats, "s", images=8) == {"images_per_second": 8 / 2.5, "s": 2.5}
    assert median_of(repeats, "images_per_second") != 8 / 2.5


def test_large_peaks_are_plain_numbers(result: BenchResult) -> None:
    fast = replace(result, peak={"dtype": "bfloat16", "tflops": 731.25, "copy_gb_per_second": 4123.4})
    (line,) = [line for line in result_lines(fast) if line.startswith("peak: ")]
    assert "731.2 TFLOP/s" in line
    assert "4123 GB/s" in line


def test_the_table(result: BenchResult) -> None:
    lines = result_lines(result)
    assert lines[0].split() == ["benchmark", "images/s", "p50", "ms", "peak", "MiB", "compiled"]
    assert lines[1].split() == ["train", "12346", "12.5", "3", "yes"]
    assert lines[2].split() == ["other", "1", "-", "-", "-"]
    assert "workload: model cifar_resnet8, image 1x8x8" in lines
    assert "settings: steps 2, batch_sizes 1 16" in lines
    assert lines[-1] == "note: a note"


def test_json_holds_everything(result: BenchResult, tmp_path: Path) -> None:
    write_result(result, tmp_path / "a.json")
    found = json.loads((tmp_path / "a.json").read_text())
    assert found["entries"][0]["repeats"][0]["step_seconds"] == [0.0125, 0.0125]
    assert found["entries"][0]["images_per_second"] == 12345.6
    assert found["entries"][0]["compiled"] == "yes"
    assert {"command", "machine", "workload", "settings", "recipe", "peak", "notes"} <= set(found)


def test_csv_and_markdown(result: BenchResult, tmp_path: Path) -> None:
    write_result(result, tmp_path / "a.csv")
    first, second = csv.DictReader((tmp_path / "a.csv").open())
    assert (first["name"], float(first["images_per_second"]), first["cpu"]) == (
        "train",
        12345.6,
        "a processor",
    )
    assert second["p50_seconds"] == second["compiled"] == ""
    assert first["model_width"] == first["num_workers"] == ""
    write_result(result, tmp_path / "a.md")
    text = (tmp_path / "a.md").read_text()
    assert "| train | 12346 | 12.5 | 3 | yes |" in text
    assert "- note: a note" in text


@pytest.mark.parametrize("name", ["a.txt", "a", "missing/a.json", "folder.json"])
def test_an_output_that_cannot_be_written_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(BadInputError, match=r"--output result\.json works"):
        check_output(str(tmp_path / name))


@pytest.mark.parametrize(
    ("warmup_steps", "steps", "repeats", "option"),
    [
        (-1, 1, 1, "--warmup-steps"),
        (0, 0, 1, "--steps"),
        (0, 1, 0, "--repeats"),
        (0, 10**6, 2, "--steps 100"),
    ],
)
def test_a_repetition_of_nothing_is_refused(warmup_steps: int, steps: int, repeats: int, option: str) -> None:
    with pytest.raises(BadInputError, match=option):
        Repetition(warmup_steps=warmup_steps, steps=steps, repeats=repeats)
