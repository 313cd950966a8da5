"""Scores of whole objects, against hand-computed examples."""

from math import log

import numpy as np
import pytest
from numpy.typing import NDArray

from drivetrain.data.masks.masked_images import find_objects
from drivetrain.tasks.region_metrics import partition_scores, region_scores


def objects(*rows: str) -> NDArray[np.int64]:
    return np.array([[int(character) for character in row] for row in rows], dtype=np.int64)


def classes(*rows: str) -> NDArray[np.uint8]:
    return objects(*rows).astype(np.uint8)


def entropy(*shares: float) -> float:
    return -sum(share * log(share) for share in shares)


def test_the_same_objects_score_1_whatever_their_numbers() -> None:
    truth = objects("1102", "1102", "0033")
    renumbered = objects("7704", "7704", "0055")
    scores = partition_scores(renumbered, truth)
    assert scores.v_rand == pytest.approx(1, abs=1e-15)
    assert scores.v_info == pytest.approx(1, abs=1e-15)


def test_a_merge() -> None:
    """Two objects of 6 and 2 pixels found as one: p = (3/4, 1/4), s = (1), t = (3/4, 1/4)."""
    scores = partition_scores(objects("111111", "110000"), objects("111111", "220000"))
    assert scores.v_rand == pytest.approx((9 / 16 + 1 / 16) / (0.5 * 1 + 0.5 * 10 / 16))
    assert scores.v_info == pytest.approx(0, abs=1e-12)


def test_a_split() -> None:
    """Objects of 4 and 4 pixels, the second found as two of 2: p = s = (1/2, 1/4, 1/4), t = (1/2, 1/2)."""
    scores = partition_scores(objects("11112233"), objects("11112222"))
    assert scores.v_rand == pytest.approx((1 / 4 + 1 / 16 + 1 / 16) / (0.5 * 3 / 8 + 0.5 * 1 / 2))
    in_truth, found = entropy(1 / 2, 1 / 2), entropy(1 / 2, 1 / 4, 1 / 4)
    assert scores.v_info == pytest.approx(in_truth / (0.5 * in_truth + 0.5 * found))


def test_pixels_that_are_membrane_in_truth_do_not_count() -> None:
    truth = objects("110022")
    wide, narrow = partition_scores(objects("111222"), truth), partition_scores(objects("110022"), truth)
    assert wide == narrow
    assert partition_scores(objects("111111"), truth) != wide


def test_objects_are_4_connected_parts_of_one_class() -> None:
    found = find_objects(classes("1101", "1010", "0220", "1110"))
    assert len(np.unique(found)) == 1 + 5
    # Corners do not connect, and neither do classes.
    assert len({found[1, 0], found[1, 2], found[2, 1], found[3, 1], found[0, 3]}) == 5
    assert (found[classes("1101", "1010", "0220", "1110") == 0] == 0).all()
    assert find_objects(classes("110", "011"), background=1).tolist() == [[0, 0, 1], [2, 0, 0]]


def test_the_width_of_a_predicted_border_costs_nothing() -> None:
    truth = classes("1110111", "1110111", "1110111")
    wide = classes("1100011", "1100011", "1000001")
    thinned = region_scores(wide, truth)
    assert thinned.v_rand == pytest.approx(1)
    assert thinned.v_info == pytest.approx(1)
    as_it_is = partition_scores(find_objects(wide), find_objects(truth))
    assert as_it_is.v_rand is not None
    assert as_it_is.v_rand < 0.9


def test_a_hole_in_the_membrane_merges() -> None:
    truth = classes("1110111", "1110111", "1110111")
    scores = region_scores(classes("1110111", "1111111", "1110111"), truth)
    assert scores.v_rand == pytest.approx(0.5 / (0.5 * 1 + 0.5 * 0.5))
    assert scores.v_info == pytest.approx(0, abs=1e-12)


def test_nothing_predicted_is_one_object_and_no_truth_has_no_score() -> None:
    truth = classes("101", "101")
    scores = region_scores(np.zeros_like(truth), truth)
    assert scores.v_rand == pytest.approx(0.5 / (0.5 * 1 + 0.5 * 0.5))
    without = region_scores(truth, np.zeros_like(truth))
    assert without.v_rand is without.v_info is None
    one = region_scores(np.ones_like(truth), np.ones_like(truth))
    assert (one.v_rand, one.v_info) == (1, 1)
