"""Counter-based randomness: every draw is a pure function of its address, without generator state.

The address is (seed, purpose, counters...), hashed by `stream_key`, and an element index, mixed in by the
cheaper `mix64`. So a draw does not change when a run resumes, when the batch is split differently, or when
draws are made in another order.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

# The constants of splitmix64 (Steele, Lea and Flood, 2014).
GOLDEN = 0x9E3779B97F4A7C15
MULTIPLIER_1 = 0xBF58476D1CE4E5B9
MULTIPLIER_2 = 0x94D049BB133111EB
_MASK_64 = (1 << 64) - 1


def stream_key(seed: int, purpose: str, *counters: int | str) -> int:
    """The 64-bit key of one stream of draws; different addresses give unrelated keys."""
    address = "\x1f".join([str(seed), purpose, *(str(counter) for counter in counters)])
    return int.from_bytes(hashlib.blake2b(address.encode(), digest_size=8).digest(), "little")


def mix64(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The splitmix64 finaliser: a bijection of 64-bit words whose output bits look independent."""
    mixed = (values ^ (values >> np.uint64(30))) * np.uint64(MULTIPLIER_1)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(MULTIPLIER_2)
    return mixed ^ (mixed >> np.uint64(31))


def draw_words(key: int, indices: NDArray[np.int64]) -> NDArray[np.uint64]:
    """One 64-bit word per index of the stream `key`."""
    counters = (indices.astype(np.uint64) + np.uint64(1)) * np.uint64(GOLDEN)
    return mix64(counters + np.uint64(key & _MASK_64))


def draw_uniform(key: int, indices: NDArray[np.int64]) -> NDArray[np.float64]:
    """One number in [0, 1) per index of the stream `key`."""
    return (draw_words(key, indices) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def draw_permutation(key: int, length: int) -> NDArray[np.int64]:
    """The random permutation of range(length) given by the stream `key`."""
    words = draw_words(key, np.arange(length, dtype=np.int64))
    return np.argsort(words, kind="stable").astype(np.int64)
