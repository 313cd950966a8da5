"""The best validation so far, by any metric."""

import math

import pytest

from drivetrain.store.best import Best


@pytest.mark.parametrize(
    ("metric", "values", "best"),
    [
        ("accuracy", [0.5, 0.7, 0.7, 0.6], 1),
        ("loss", [0.5, 0.7, 0.3, 0.3], 2),
        ("iou_cell", [0.5, None, 0.6], 2),
        ("dice", [0.5, math.nan, math.inf, 0.4], 0),
        ("loss", [math.nan, 0.5, math.nan], 1),
    ],
)
def test_the_best_is_chosen_in_the_metrics_own_direction(
    metric: str, values: list[float | None], best: int
) -> None:
    found = Best(metric)
    improved = [found.offer(update, value) for update, value in enumerate(values)]
    assert (found.update, found.value) == (best, values[best])
    assert improved[best]
    assert not any(improved[best + 1 :])
    assert Best.from_json(found.as_json()) == found


def test_it_says_what_chose_it() -> None:
    assert Best("loss", 0.25, 7).sentence() == "update 7, chosen by loss: 0.2500 (lower is better)"
    best = Best("dice", 0.5, 7)
    assert best.sentence() == "update 7, chosen by soft Dice (mean over classes): 0.5000 (higher is better)"
    assert Best("iou_x").sentence() == "none, as no validation gave a finite IoU of x (higher is better)"
    assert Best("loss").as_json()["direction"] == "lower is better"


def test_what_an_older_version_wrote_is_read() -> None:
    assert Best.from_json({"metric": "dice", "value": 0.5, "update": 3}) == Best("dice", 0.5, 3)
