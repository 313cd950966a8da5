"""Labels of points that do not cover each other."""

import random
from itertools import combinations

from drivetrain.bench.suite.labels import Box, place_labels

AREA = Box(400.0, 300.0, 800.0, 600.0)
SIZE = (46.0, 10.0)


def _covering(boxes: list[Box]) -> list[tuple[Box, Box]]:
    return [(one, other) for one, other in combinations(boxes, 2) if one.overlaps(other)]


def _crowd(count: int) -> list[tuple[float, float]]:
    draw = random.Random(0)
    return [(draw.gauss(400.0, 60.0), draw.gauss(300.0, 60.0)) for _ in range(count)]


def test_no_label_covers_another_or_a_point() -> None:
    points = _crowd(60)
    boxes = [box for box in place_labels(points, [SIZE] * 60, area=AREA, marker=8.0) if box is not None]
    assert len(boxes) == 60
    assert _covering(boxes) == []
    markers = [Box(x, y, 8.0, 8.0) for x, y in points]
    assert not any(box.overlaps(marker) for box in boxes for marker in markers)
    assert all(box.is_inside(AREA) for box in boxes)


def test_labels_simply_written_to_the_right_would_cover_each_other() -> None:
    boxes = [Box(x + 5 + SIZE[0] / 2, y, *SIZE) for x, y in _crowd(60)]
    assert len(_covering(boxes)) > 10


def test_what_is_taken_stays_free() -> None:
    legend = Box(400.0, 300.0, 200.0, 100.0)
    (box,) = place_labels([(400.0, 340.0)], [SIZE], area=AREA, marker=8.0, taken=[legend])
    assert box is not None
    assert not box.overlaps(legend)


def test_a_lonely_label_stands_beside_its_point() -> None:
    (box,) = place_labels([(100.0, 100.0)], [SIZE], area=AREA, marker=8.0)
    assert box == Box(100.0 + 4.0 + 2.0 + 23.0, 100.0, *SIZE)


def test_a_label_without_room_is_left_out() -> None:
    small = Box(25.0, 10.0, 50.0, 20.0)
    assert place_labels([(25.0, 10.0)], [SIZE], area=small, marker=8.0) == [None]
