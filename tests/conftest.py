"""Searched-for examples are the same in every run, so that a check that is green stays green.

The session has a cache folder of its own, which the processes that it starts inherit: what the user's holds
must not decide what a test finds, and tests leave nothing there.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

from drivetrain.devices.code_folder import CACHE_VARIABLE, TRITON_VARIABLE
from drivetrain.devices.cpu_half import make_half_safe, usable_half_names
from drivetrain.devices.processor import read_processor
from drivetrain.models.from_keras.package import BACKEND_VARIABLE
from tests.deadlines import HANG_S
from tests.tiers import marks_of

if TYPE_CHECKING:
    from drivetrain.ranks.pool import RankPool
    from tests.run.small_training import TrainSmall

_TESTS = Path(__file__).parent
# Their tests compare bits, which need equal threads, or run little models, which threads make slower.
_ONE_THREAD_FOLDERS = frozenset(
    [
        "assembly",
        "bench",
        "console",
        "crossvalidation",
        "inference",
        "pictures",
        "pipeline",
        "run",
        "schedules",
        "state",
        "store",
    ]
)

settings.register_profile("repeatable", derandomize=True)
settings.load_profile("repeatable")

_CACHE = tempfile.mkdtemp(prefix="drivetrain-tests-cache-")
os.environ["XDG_CACHE_HOME"] = _CACHE
# Tests with a cache of their own share compiled code all the same: compiling takes most of their time.
os.environ[CACHE_VARIABLE] = os.path.join(_CACHE, "compiled")
os.environ.pop(TRITON_VARIABLE, None)
# Keras reads it when it is first imported.
os.environ.setdefault(BACKEND_VARIABLE, "torch")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what `make check` leaves out, and what needs an accelerator."""
    for item in (item for item in items if item.path.is_relative_to(_TESTS)):
        file = item.path.relative_to(_TESTS).as_posix()
        for mark in marks_of(file, fixtures=getattr(item, "fixturenames", ())):
            item.add_marker(mark)


def pytest_unconfigure() -> None:
    """The session's cache goes with it."""
    shutil.rmtree(_CACHE, ignore_errors=True)


# Before the first test computes anything, where the processor may forbid what it advertises.
if "amx_bf16" in read_processor().features and "bfloat16" in usable_half_names():
    make_half_safe("bfloat16")


@pytest.fixture
def stand_in_libraries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small packages in the place of timm, torchvision, transformers and segmentation_models_pytorch."""
    from tests.models.libraries.stand_ins import use_stand_ins

    use_stand_ins(monkeypatch)


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Equal bits need equal threads, and the test machine may be busy."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def threads_of_the_folder(request: pytest.FixtureRequest) -> None:
    """One thread in the folders that want it."""
    if request.path.relative_to(_TESTS).parts[0] in _ONE_THREAD_FOLDERS:
        request.getfixturevalue("one_thread")


@pytest.fixture
def train_small() -> "TrainSmall":
    """Trains a small recipe into a directory, quietly; options replace its values."""
    from tests.run.small_training import train_small_run

    return train_small_run


@pytest.fixture
def no_pictures(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """For files of many runs: most of the time of a small one goes to drawing its pictures.

    A test there that looks at them is marked `pictures`.
    """
    from tests.run.small_training import leave_out_pictures

    if request.node.get_closest_marker("pictures") is None:
        leave_out_pictures(monkeypatch)


@pytest.fixture(scope="session")
def rank_pool() -> Iterator["RankPool"]:
    """Four ranks that serve every test which asks for them; they start at the first work."""
    from drivetrain.ranks.pool import RankPool

    with RankPool(4, timeout_s=HANG_S) as pool:
        yield pool
