"""The choice between resident and streamed data."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.data.feeds.feed import Feed, ResidentFeed, StreamFeed, make_feed
from drivetrain.data.preprocess import Preprocess
from drivetrain.data.source import Source
from drivetrain.recipe.schema import Placement
from tests.data.helpers import (
    CPU,
    collect,
    float_source,
    make_order,
    same_batches,
    small_source,
    spec_of_small,
)

BYTES_OF_SMALL = 50 * 6 * 5 * 3
ACCELERATOR = torch.device("meta")


def choose(
    *,
    source: Source | None = None,
    data_placement: Placement = "auto",
    memory_budget_bytes: int = 2**30,
    num_workers: int | None = None,
    accelerator_side_preprocess: bool | None = None,
    eight_bit_transfer: bool = False,
    device: torch.device = CPU,
) -> tuple[Feed, list[str]]:
    return make_feed(
        source or small_source(),
        order=make_order(),
        preprocess=Preprocess(spec_of_small(small_source())),
        micro_batch_size=4,
        device=device,
        memory_budget_bytes=memory_budget_bytes,
        data_placement=data_placement,
        num_workers=num_workers,
        accelerator_side_preprocess=accelerator_side_preprocess,
        eight_bit_transfer=eight_bit_transfer,
    )


class RandomTransforms:
    """A source that breaks the promise of purity, as data sets with random transforms do."""

    def __init__(self) -> None:
        self._calls = 0

    def __len__(self) -> int:
        return 50

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        self._calls += 1
        images, labels = small_source().fetch(indices)
        return images + np.uint8(self._calls), labels


def test_auto_is_resident_up_to_a_quarter_of_the_memory() -> None:
    assert isinstance(choose(memory_budget_bytes=4 * BYTES_OF_SMALL)[0], ResidentFeed)
    assert isinstance(choose(memory_budget_bytes=4 * BYTES_OF_SMALL - 1)[0], StreamFeed)


def test_resident_data_must_fit() -> None:
    assert isinstance(choose(data_placement="resident", memory_budget_bytes=BYTES_OF_SMALL)[0], ResidentFeed)
    with pytest.raises(BadInputError, match=rf"needs {BYTES_OF_SMALL} bytes.*--data-placement stream"):
        choose(data_placement="resident", memory_budget_bytes=BYTES_OF_SMALL - 1)


def test_preprocessing_on_the_host_means_streaming_where_host_and_device_differ() -> None:
    streamed, _ = choose(accelerator_side_preprocess=False, num_workers=0, device=ACCELERATOR)
    assert isinstance(streamed, StreamFeed)
    assert isinstance(choose(accelerator_side_preprocess=False)[0], ResidentFeed)
    with pytest.raises(BadInputError, match=r"--accelerator-side-preprocess False.*--data-placement stream"):
        choose(accelerator_side_preprocess=False, data_placement="resident", device=ACCELERATOR)


def test_workers_without_effect_are_said() -> None:
    _, (warning,) = choose(num_workers=2)
    assert "--num-workers 2 has no effect" in warning
    assert "--data-placement stream" in warning
    assert choose(num_workers=0)[1] == []
    assert choose(num_workers=2, data_placement="stream")[1] == []


def test_no_more_loader_workers_than_a_machine_bears() -> None:
    with pytest.raises(BadInputError, match=r"--num-workers 99999 is more than .*; --num-workers \d works"):
        choose(num_workers=99999, data_placement="stream")


def test_eight_bit_transfer_needs_bytes_and_preprocessing_on_the_device() -> None:
    with pytest.raises(BadInputError, match="--accelerator-side-preprocess True"):
        choose(eight_bit_transfer=True, accelerator_side_preprocess=False)
    source, spec = float_source()
    with pytest.raises(BadInputError, match="--eight-bit-transfer needs 8-bit images"):
        make_feed(
            source,
            order=make_order(20),
            preprocess=Preprocess(spec),
            micro_batch_size=4,
            device=CPU,
            memory_budget_bytes=2**30,
            eight_bit_transfer=True,
        )


def test_random_transforms_are_not_frozen_silently() -> None:
    streamed, (warning,) = choose(source=RandomTransforms(), num_workers=0)
    assert isinstance(streamed, StreamFeed)
    assert "random transforms" in warning
    resident, (warning,) = choose(source=RandomTransforms(), data_placement="resident")
    assert isinstance(resident, ResidentFeed)
    assert "--data-placement stream" in warning


def test_both_placements_feed_the_same() -> None:
    resident, _ = choose(data_placement="resident")
    expected = collect(resident, range(9))
    for on_device, eight_bit in ((None, False), (True, False), (True, True)):
        streamed, _ = choose(
            data_placement="stream",
            num_workers=0,
            accelerator_side_preprocess=on_device,
            eight_bit_transfer=eight_bit,
        )
        assert same_batches(collect(streamed, range(9)), expected)


def test_transfers_that_a_cpu_never_makes_are_said() -> None:
    _, warnings = choose(accelerator_side_preprocess=True, eight_bit_transfer=True)
    assert [warning.split(" has no effect: resident data")[0] for warning in warnings] == [
        "--accelerator-side-preprocess True",
        "--eight-bit-transfer True",
    ]
    assert choose(accelerator_side_preprocess=False)[1] == []
    streamed = choose(accelerator_side_preprocess=True, eight_bit_transfer=True, data_placement="stream")
    assert streamed[1] == []
    assert choose(accelerator_side_preprocess=True, device=ACCELERATOR)[1] == []
