"""Which part of an image becomes a sample."""

import numpy as np
import pytest

from drivetrain.data.files.crop import Fit, RandomCrop


@pytest.mark.parametrize(
    ("size", "box"),
    [
        ((500, 375), (85, 23, 413.125, 351.125)),
        ((256, 256), (16, 16, 240, 240)),
        ((300, 256), (38, 16, 262, 240)),
    ],
)
def test_imagenets_middle(size: tuple[int, int], box: tuple[float, ...]) -> None:
    assert Fit(height=224, width=224, short_side=256).centre_box(*size) == box


@pytest.mark.parametrize("size", [(7, 3), (3, 7), (5, 5), (1, 1), (33, 32), (4000, 2999)])
def test_the_short_side_is_kept_whole(size: tuple[int, int]) -> None:
    left, top, right, bottom = Fit(height=9, width=9, short_side=9).centre_box(*size)
    assert right - left == bottom - top == min(size)
    assert (left, top) == ((size[0] - min(size)) // 2, (size[1] - min(size)) // 2)


def test_without_a_short_side_everything_is_stretched() -> None:
    assert Fit(height=2, width=9, short_side=None).centre_box(40, 30) == (0, 0, 40, 30)


def boxes(crop: RandomCrop, indices: np.ndarray, passes: np.ndarray, *, size: tuple[int, int]) -> np.ndarray:
    return np.array([crop.box(*size, draws=draws) for draws in crop.draws(indices, passes)])


def test_boxes_lie_inside_and_keep_the_promised_area_and_shape() -> None:
    everything = np.arange(2000)
    for crop, smallest in (
        (RandomCrop(seed=1, smallest_area=0.25), 0.25),
        (RandomCrop(seed=1, smallest_area=0.05, smallest_cover=0.1), 0.1),
    ):
        found = boxes(crop, everything, np.zeros(2000, dtype=np.int64), size=(640, 480))
        left, top, right, bottom = found.T
        assert left.min() >= 0
        assert top.min() >= 0
        assert right.max() <= 640
        assert bottom.max() <= 480
        shares = (right - left) * (bottom - top) / (640 * 480)
        assert smallest - 0.01 <= shares.min() < smallest + 0.02
        assert shares.max() > 0.9
        shapes = (right - left) / (bottom - top)
        assert 0.74 < shapes.min() < 0.78
        assert 1.28 < shapes.max() < 1.35


def test_a_box_depends_on_seed_pass_and_sample_alone() -> None:
    crop = RandomCrop(seed=1, smallest_area=0.1)
    indices, passes = np.array([5, 9, 5, 70]), np.array([0, 0, 1, 2])
    together = boxes(crop, indices, passes, size=(90, 70))
    for place in range(4):
        alone = boxes(crop, indices[place : place + 1], passes[place : place + 1], size=(90, 70))
        assert np.array_equal(alone[0], together[place])
    assert not np.array_equal(together[0], together[2])
    assert not np.array_equal(together[0], together[1])
    other = boxes(RandomCrop(seed=2, smallest_area=0.1), indices, passes, size=(90, 70))
    assert not np.array_equal(other, together)


def test_an_image_that_no_box_fits_is_taken_whole() -> None:
    crop = RandomCrop(seed=1, smallest_area=0.9)
    assert (
        boxes(crop, np.arange(3), np.zeros(3, dtype=np.int64), size=(1000, 2)).tolist()
        == [[0, 0, 1000, 2]] * 3
    )
    assert boxes(crop, np.arange(3), np.zeros(3, dtype=np.int64), size=(1, 1)).tolist() == [[0, 0, 1, 1]] * 3
