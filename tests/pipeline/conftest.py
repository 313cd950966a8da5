"""Models of a few numbers gain nothing by threads, which would only wait for each other."""

import pytest


@pytest.fixture(autouse=True)
def always_one_thread(one_thread: None) -> None:
    """As many threads as a rank of the pool has."""
