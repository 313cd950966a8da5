"""Searched-for examples are the same in every run, so that a check that is green stays green."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from drivetrain.cluster.cpu_half import make_half_safe, usable_half_names
from drivetrain.cluster.processor import read_processor

if TYPE_CHECKING:
    from drivetrain.cluster.pool import RankPool

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

# Before the first test computes anything, where the processor may forbid what it advertises.
if "amx_bf16" in read_processor().features and "bfloat16" in usable_half_names():
    make_half_safe("bfloat16")


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Equal bits need equal threads, and the test machine may be busy."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For files of many runs: most of the time of a small one goes to drawing its pictures.

    A test there that looks at them is marked `pictures`.
    """
    from drivetrain.run import finish

    if request.node.get_closest_marker("pictures") is not None:
        return
    for name in ("draw_curves", "draw_predictions", "draw_mask_predictions", "write_evaluation"):
        monkeypatch.setattr(finish, name, lambda *arguments, **options: None)


@pytest.fixture(scope="session")
def rank_pool() -> Iterator["RankPool"]:
    """Four ranks that serve every test which asks for them; they start at the first work."""
    from drivetrain.cluster.pool import RankPool

    with RankPool(4) as pool:
        yield pool
