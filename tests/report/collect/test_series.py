"""Long lines are shortened without losing an extreme, and say so."""

from typing import Any

import numpy as np
import pytest

from drivetrain.report.collect.series import series_of, series_of_events


def test_a_short_line_keeps_every_point() -> None:
    line = series_of("loss", [3.0, 2.0, 1.0], updates=[1, 2, 3], max_points=2000)
    assert line == {"name": "loss", "x": [1, 2, 3], "y": [3.0, 2.0, 1.0]}


@pytest.mark.parametrize("places", [(0, 9999), (17, 5003), (9998, 1)])
def test_a_long_line_keeps_its_extremes_and_its_ends(places: tuple[int, int]) -> None:
    values = np.random.default_rng(0).random(10_000)
    values[places[0]], values[places[1]] = -5.0, 7.0
    line = series_of("loss", values, updates=range(1, 10_001), max_points=200)
    found = dict(zip(line["x"], line["y"], strict=True))
    assert found[places[0] + 1] == -5.0
    assert found[places[1] + 1] == 7.0
    assert {1, 10_000} <= found.keys()
    assert len(line["x"]) <= 200
    assert line["name"] == "loss (lowest and highest of every 102)"
    assert line["x"] == sorted(set(line["x"]))


def test_all_points_are_there_if_asked_for() -> None:
    line = series_of("loss", np.zeros(10_000), updates=range(10_000), max_points=None)
    assert len(line["x"]) == 10_000


def test_values_that_are_not_finite_stay_visible_as_gaps() -> None:
    values = np.ones(1000)
    values[[400, 777]] = np.nan, np.inf
    line = series_of("loss", values, updates=range(1000), max_points=90)
    gaps = [x for x, y in zip(line["x"], line["y"], strict=True) if y is None]
    assert gaps == [400, 777]
    assert len(line["x"]) <= 90


def test_events_without_the_value_are_left_out() -> None:
    events: list[dict[str, Any]] = [{"update": 1, "iou": 0.5}, {"update": 2}, {"update": 3, "iou": None}]
    line = series_of_events("validation", events, "iou", max_points=None)
    assert line == {"name": "validation", "x": [1, 3], "y": [0.5, None]}
    assert series_of_events("validation", events, "dice", max_points=None) is None
