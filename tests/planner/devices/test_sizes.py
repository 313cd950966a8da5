"""Sizes of memory, as people write them."""

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.planner.devices.sizes import parse_bytes


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("80 GB", 80 * 10**9),
        ("8gb", 8 * 10**9),
        ("512MiB", 512 * 2**20),
        ("1.5 GiB", 3 * 2**29),
        ("8e9", 8 * 10**9),
        (141000, 141000),
        ("16G", 16 * 10**9),
    ],
)
def test_sizes_are_read(text: object, size: int) -> None:
    assert parse_bytes(text, what="--memory-limit") == size


@pytest.mark.parametrize(
    "text", ["", "GB", "-8GB", "0", "8 GW", "inf", "nan", True, None, "8GB 9GB", "1e999"]
)
def test_what_is_no_size_is_refused_with_one_that_works(text: object) -> None:
    with pytest.raises(BadInputError, match=r"--memory-limit .* 8GB works"):
        parse_bytes(text, what="--memory-limit")
