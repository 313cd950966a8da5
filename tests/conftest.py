"""Searched-for examples are the same in every run, so that a check that is green stays green."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from drivetrain.cluster.pool import RankPool

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")


@pytest.fixture(scope="session")
def rank_pool() -> Iterator["RankPool"]:
    """Four ranks that serve every test which asks for them; they start at the first work."""
    from drivetrain.cluster.pool import RankPool

    with RankPool(4) as pool:
        yield pool
