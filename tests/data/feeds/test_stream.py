"""Streamed data: the same as resident data, whatever the loader workers."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.data.feeds.loader import LoaderTracebackError, default_num_workers
from drivetrain.data.feeds.resident import ResidentFeed
from drivetrain.data.order import SampleOrder
from drivetrain.data.preprocess import Preprocess
from drivetrain.recipe.schema import Remainder
from tests.data.feeds.small_stream import stream
from tests.data.helpers import CPU, collect, make_order, same_batches, small_source, spec_of_small
from tests.deadlines import HANG_S


def resident(order: SampleOrder, *, replica: int = 0, replicas: int = 1) -> ResidentFeed:
    return ResidentFeed(
        small_source(),
        order=order,
        preprocess=Preprocess(spec_of_small(small_source()), 7),
        micro_batch_size=2,
        device=CPU,
        replica=replica,
        replicas=replicas,
    )


class FailingSource:
    """Cannot fetch one of its samples."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def __len__(self) -> int:
        return 50

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        if 17 in indices:
            raise self._error
        return small_source().fetch(indices)


class SignalledSource:
    """Sends its own process the signals a terminal and a batch system send to a whole process group."""

    def __len__(self) -> int:
        return 50

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGTERM)
        assert torch.get_num_threads() == 1
        return small_source().fetch(indices)


@pytest.mark.parametrize("remainder", ["trim", "pad", "carry"])
@pytest.mark.parametrize("replicas", [1, 2])
def test_equals_resident_data_bit_for_bit(remainder: Remainder, replicas: int) -> None:
    order = make_order(remainder=remainder)
    for replica in range(replicas):
        expected = collect(resident(order, replica=replica, replicas=replicas), range(15))
        found = collect(stream(order, replica=replica, replicas=replicas), range(15))
        assert same_batches(found, expected)
    other_order = collect(stream(make_order(remainder=remainder, seed=4)), range(15))
    assert not same_batches(other_order, collect(resident(order), range(15)))


def test_two_loader_workers_change_nothing_and_it_can_start_anywhere() -> None:
    order = make_order(remainder="pad")
    feed = stream(order, num_workers=2)
    assert same_batches(collect(feed, range(5, 9)), collect(resident(order), range(5, 9)))
    feed.close()


@pytest.mark.parametrize("eight_bit_transfer", [False, True])
def test_preprocessing_on_the_device_gives_the_same(eight_bit_transfer: bool) -> None:
    order = make_order()
    on_device = stream(order, preprocess_on_device=True, eight_bit_transfer=eight_bit_transfer)
    assert same_batches(collect(on_device, range(7)), collect(stream(order), range(7)))


def test_asked_for_another_update_it_starts_there() -> None:
    order = make_order()
    feed, expected = stream(order), resident(order)
    for update in (0, 1, 5, 2, 2):
        assert same_batches(
            collect(feed, range(update, update + 1)), collect(expected, range(update, update + 1))
        )
    next(feed.micro_batches(8))
    assert same_batches(collect(feed, range(8, 10)), collect(expected, range(8, 10)))


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_failing_source_surfaces_with_its_cause(num_workers: int) -> None:
    feed = stream(
        make_order(shuffle=False), source=FailingSource(ValueError("bad pixel")), num_workers=num_workers
    )
    assert len(collect(feed, range(2))) == 8
    with pytest.raises(RunFailedError, match="ValueError: bad pixel") as caught:
        collect(feed, range(2, 3))
    assert isinstance(caught.value.__cause__, LoaderTracebackError)
    assert "in fetch" in str(caught.value.__cause__)
    feed.close()


def test_a_sentence_for_the_user_stays_one() -> None:
    feed = stream(make_order(shuffle=False), source=FailingSource(BadInputError("Sample 17 is odd.")))
    with pytest.raises(RunFailedError, match=r"^Samples could not be prepared: Sample 17 is odd\.$"):
        collect(feed, range(6))


def test_signals_do_not_end_a_loader_worker() -> None:
    order = make_order()
    feed = stream(order, source=SignalledSource(), num_workers=1)
    assert same_batches(collect(feed, range(3)), collect(resident(order), range(3)))
    feed.close()


_LEAVES_WITHOUT_CLOSING = """
from tests.data.helpers import collect, make_order
from tests.data.feeds.small_stream import stream
feed = stream(make_order(), num_workers=1)
collect(feed, range(2))
raise SystemExit(7)
"""


def test_a_program_that_never_closes_its_feed_ends_all_the_same() -> None:
    command = [sys.executable, "-c", _LEAVES_WITHOUT_CLOSING]
    ended = subprocess.run(command, cwd=Path(__file__).parents[3], timeout=HANG_S, check=False)
    assert ended.returncode == 7


_IS_KILLED = """
import multiprocessing, os, signal
import torch.utils.data._utils as utilities
# torch's own watchdog, which looks for the parent every 5 seconds, is not to be what ends them.
utilities.MP_STATUS_CHECK_INTERVAL = 1e6
from tests.data.helpers import collect, make_order
from tests.data.feeds.small_stream import stream
feed = stream(make_order(), num_workers=2)
collect(feed, range(2))
print(*[child.pid for child in multiprocessing.active_children()], flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="other systems leave it to torch's watchdog")
def test_loader_workers_end_with_a_killed_training() -> None:
    command = [sys.executable, "-c", _IS_KILLED]
    # The output ends when the last process that inherited it is gone.
    with subprocess.Popen(command, cwd=Path(__file__).parents[3], stdout=subprocess.PIPE) as killed:
        assert killed.stdout is not None
        assert len(killed.stdout.readline().split()) == 2
        killed.wait()
        assert killed.stdout.read() == b""


def test_torchs_generator_is_left_alone() -> None:
    before = torch.random.get_rng_state()
    collect(stream(make_order()), range(2))
    assert torch.equal(torch.random.get_rng_state(), before)


def test_default_number_of_workers_is_small() -> None:
    assert 1 <= default_num_workers() <= 4
