"""Python's own random numbers, for code that draws from them while it builds a model."""

import random
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["seeded_python"]


@contextmanager
def seeded_python(key: int) -> Iterator[None]:
    """Seeds Python's generator for the block and puts it back: Keras draws the seeds of weights from it."""
    before = random.getstate()
    random.seed(key)
    try:
        yield
    finally:
        random.setstate(before)
