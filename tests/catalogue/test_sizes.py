import pytest

from drivetrain.catalogue.sizes import missing_to_multiple, nearest_sizes, padded_size


@pytest.mark.parametrize(
    ("size", "depth", "expected"), [(1, 4, 16), (16, 4, 16), (17, 4, 32), (33, 1, 34), (512, 8, 512)]
)
def test_padded_size(size: int, depth: int, expected: int) -> None:
    assert padded_size(size, depth=depth) == expected


@pytest.mark.parametrize(("size", "expected"), [(8, (0, 0)), (7, (0, 1)), (5, (1, 2)), (1, (3, 4))])
def test_the_odd_pixel_is_added_after(size: int, expected: tuple[int, int]) -> None:
    assert missing_to_multiple(size, multiple=8) == expected


@pytest.mark.parametrize(
    ("size", "expected"), [(388, (388, 404)), (389, (388, 404)), (403, (388, 404)), (5, (4, 20))]
)
def test_nearest_sizes(size: int, expected: tuple[int, int]) -> None:
    assert nearest_sizes(size, smallest=4, step=16) == expected
