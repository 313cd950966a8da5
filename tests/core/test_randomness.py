import numpy as np
import pytest

from drivetrain.core.randomness import draw_permutation, draw_uniform, draw_words, stream_key


def test_keys_differ_by_every_part_of_the_address() -> None:
    addresses = [(0, "a"), (1, "a"), (0, "b"), (0, "a", 0), (0, "a", 1), (0, "a", 0, 0), (0, "a", "00")]
    keys = {stream_key(*address) for address in addresses}  # type: ignore[arg-type]
    assert len(keys) == len(addresses)


def test_a_draw_depends_on_its_index_alone() -> None:
    key = stream_key(3, "test")
    whole = draw_uniform(key, np.arange(1000, dtype=np.int64))
    some = np.array([7, 999, 0], dtype=np.int64)
    assert (draw_uniform(key, some) == whole[some]).all()
    assert not (draw_uniform(key + 1, some) == whole[some]).any()


def test_words_are_those_of_splitmix64() -> None:
    """The published first outputs of splitmix64 seeded with 0."""
    words = draw_words(0, np.arange(3, dtype=np.int64))
    assert [hex(word) for word in words.tolist()] == [
        "0xe220a8397b1dcdaf",
        "0x6e789e6aa1b965f4",
        "0x6c45d188009454f",
    ]


def test_uniform_draws_are_uniform() -> None:
    draws = draw_uniform(stream_key(0, "uniform"), np.arange(200_000, dtype=np.int64))
    counts = np.histogram(draws, bins=50, range=(0.0, 1.0))[0]
    chi_square = ((counts - 4000.0) ** 2 / 4000.0).sum()
    assert draws.min() >= 0.0
    assert draws.max() < 1.0
    assert chi_square < 100.0
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 0.01


@pytest.mark.parametrize("length", [1, 2, 1797])
def test_permutations_hold_every_index_once(length: int) -> None:
    permutation = draw_permutation(stream_key(0, "shuffle", 0), length)
    assert sorted(permutation.tolist()) == list(range(length))


def test_epochs_have_different_permutations() -> None:
    first, second = (draw_permutation(stream_key(0, "shuffle", epoch), 100) for epoch in (0, 1))
    assert (first != second).any()
