"""Rows, columns and totals of a suite."""

import csv
import io
from pathlib import Path

import pytest

from drivetrain.bench.suite.case import Case, SuiteSettings, Variant
from drivetrain.bench.suite.folder import Outcome, SuiteFolder
from drivetrain.bench.suite.rows import COLUMNS, rows, rows_as_csv, totals
from drivetrain.bench.suite.run import Ended, run_suite
from drivetrain.console.reporter import Reporter
from tests.bench.suite.fake_cases import FakeProcesses, fake_cases, fake_result


@pytest.fixture
def ended(tmp_path: Path) -> list[Ended]:
    folder = SuiteFolder(tmp_path / "suite")
    with Reporter(quiet=True) as reporter:
        return run_suite(
            fake_cases(), SuiteSettings(), folder, reporter=reporter, most_s=1.0, measure=FakeProcesses()
        )


def test_a_row_has_what_is_known(ended: list[Ended]) -> None:
    by_case = {(row["work"], row["model"], row["batch_size"]): row for row in rows(ended)}
    row = by_case["train", "resnet18", 32]
    moved = 44e6 + 32 * 40e6
    assert row["images_per_second"] == 100
    assert row["flops_per_parameter"] == 1.8e9 / 11e6
    assert row["bytes_per_batch"] == 3 * moved
    assert row["flops_per_byte"] == 32 * 1.8e9 / moved
    assert by_case["infer", "resnet18", 32]["bytes_per_batch"] == moved
    assert "joules_per_image" not in row
    failed = by_case["train", "broken", 1]
    assert (failed["status"], failed["why"]) == ("failed", "it is broken")
    assert "images_per_second" not in failed


def test_the_csv_has_every_column_and_every_case(ended: list[Ended]) -> None:
    found = list(csv.DictReader(io.StringIO(rows_as_csv(rows(ended)))))
    assert len(found) == 12
    assert tuple(found[0]) == COLUMNS
    assert found[0]["joules_per_image"] == ""
    assert {row["status"] for row in found} == {"measured", "failed"}


def test_the_total_is_an_epoch_of_every_training(ended: list[Ended]) -> None:
    (total,) = totals(rows(ended), epoch_images=1000)
    assert (total.series, total.cases, total.measured) == ("cuda eager", 6, 4)
    assert total.seconds == pytest.approx(2 * 1000 / 100 + 2 * 992 / 100)


def _fell_back(variant: Variant, *, state: str, note: str) -> Ended:
    case = Case(device="cuda", variant=variant, work="train", model="vgg16", batch_size=1)
    result = fake_result(case.arguments(SuiteSettings()))
    result["entries"][0][variant] = state
    result["notes"] = ["measured", note]
    return Ended(case=case, outcome=Outcome(status="measured", result=result))


@pytest.mark.parametrize(
    ("variant", "note"),
    [
        ("compiled", "the model runs uncompiled, because compiling failed: no compiler"),
        ("captured", "updates not captured: the model synchronises"),
    ],
)
def test_a_case_that_fell_back_is_a_row_of_its_own_status(variant: Variant, note: str) -> None:
    (row,) = rows([_fell_back(variant, state="no", note=note)])
    assert (row["status"], row["why"], row["images_per_second"]) == (f"not {variant}", note, 100.0)
    (total,) = totals([row], epoch_images=1000)
    assert (total.cases, total.measured, total.seconds) == (1, 0, 0)
    (row,) = rows([_fell_back(variant, state="yes", note=note)])
    assert row["status"] == "measured"
    assert "why" not in row
