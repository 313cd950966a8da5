"""Pages of many runs stay below their limit: first the lines get shorter, then options are left out."""

import json
from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.report.collect.fitting import fit
from drivetrain.report.collect.pages import contents_of
from drivetrain.report.contents import Curve, PageContents
from tests.report.collect.fabricated import classifier

RUNS = 3


@pytest.fixture
def contents(tmp_path: Path) -> PageContents:
    return contents_of([classifier(tmp_path / f"run-{number}") for number in range(RUNS)])


def _curves(points: int) -> list[list[Curve]]:
    y: list[float | None] = [0.5] * points
    line = Curve(
        id="loss",
        title="loss",
        unit="",
        lower_is_better=True,
        series=[{"name": "training (lowest and highest of every 9)", "x": list(range(points)), "y": y}],
    )
    return [[line] for _ in range(RUNS)]


def _size(contents: PageContents) -> int:
    return len(json.dumps(contents, separators=(",", ":")))


def _fill(contents: PageContents, points: int) -> None:
    for run, curves in zip(contents["runs"], _curves(points), strict=True):
        run["curves"] = curves


def test_what_is_small_enough_stays(contents: PageContents) -> None:
    before = json.dumps(contents)
    fit(contents, _curves, points=2000, full=2000)
    assert json.dumps(contents) == before


def test_lines_get_as_short_as_they_must(contents: PageContents) -> None:
    _fill(contents, 2000)
    fit(contents, _curves, points=2000, full=2000, most_bytes=_size(contents) - 30_000)
    points = len(contents["runs"][0]["curves"][0]["series"][0]["x"])
    assert 500 < points < 1500
    assert contents["notes"] == [
        f"Each line has at most {points} points here; the page of a single run has more."
    ]


def test_then_options_are_left_out(contents: PageContents) -> None:
    _fill(contents, 16)
    fit(contents, _curves, points=16, full=2000, most_bytes=_size(contents) - 1000)
    assert len(contents["notes"]) == 2
    assert {value["option"] for value in contents["runs"][0]["recipe"]} >= {"--seed", "--max-updates"}
    assert "default" not in {value["origin"] for run in contents["runs"] for value in run["recipe"]}


def test_more_than_a_page_can_hold_is_refused(contents: PageContents) -> None:
    with pytest.raises(BadInputError, match="RUN names 3 runs, too many for one page"):
        fit(contents, _curves, points=16, full=2000, most_bytes=1000)
