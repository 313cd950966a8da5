"""Which sample is where."""

import pickle
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.randomness import draw_permutation, stream_key
from drivetrain.data.order import PADDING, SampleOrder, micro_batch_slice, replica_slots, without_padding
from drivetrain.recipe.schema import Remainder
from tests.data.helpers import make_order

sizes = st.integers(min_value=1, max_value=40)


def epoch_samples(order: SampleOrder, epoch: int) -> np.ndarray:
    updates = int(order.updates_per_epoch)
    return order.rows(epoch * updates, (epoch + 1) * updates).reshape(-1)


@given(samples=sizes, global_batch=sizes, epoch=st.integers(0, 5))
def test_pad_shows_every_sample_exactly_once_per_epoch(samples: int, global_batch: int, epoch: int) -> None:
    order = make_order(samples, global_batch=global_batch, remainder="pad")
    shown = epoch_samples(order, epoch)
    assert sorted(shown[shown >= 0]) == list(range(samples))
    assert (shown == -1).sum() == len(shown) - samples < global_batch
    updates = int(order.updates_per_epoch)
    assert sum(order.real_samples(epoch * updates + update) for update in range(updates)) == samples


@given(samples=sizes, batch=sizes, epoch=st.integers(0, 5))
def test_trim_takes_the_permutations_beginning(samples: int, batch: int, epoch: int) -> None:
    global_batch = min(batch, samples)
    order = make_order(samples, global_batch=global_batch)
    shown = epoch_samples(order, epoch)
    permutation = draw_permutation(stream_key(3, "shuffle", epoch), samples)
    assert np.array_equal(shown, permutation[: samples // global_batch * global_batch])


@given(samples=sizes, global_batch=sizes, updates=st.integers(1, 20))
def test_carry_is_the_stream_of_all_permutations(samples: int, global_batch: int, updates: int) -> None:
    order = make_order(samples, global_batch=global_batch, remainder="carry")
    passes = range(-(-updates * global_batch // samples))
    stream = np.concatenate(
        [draw_permutation(stream_key(3, "shuffle", number), samples) for number in passes]
    )
    assert np.array_equal(order.rows(0, updates).reshape(-1), stream[: updates * global_batch])
    assert [order.epoch_of(update) for update in range(updates)] == [
        update * global_batch // samples for update in range(updates)
    ]


@pytest.mark.parametrize("remainder", ["trim", "pad", "carry"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_any_update_can_be_asked_for_first(remainder: Remainder, shuffle: bool) -> None:
    straight = make_order(remainder=remainder, shuffle=shuffle).rows(0, 30)
    for update in (29, 0, 13, 7, 6, 8):
        order = pickle.loads(pickle.dumps(make_order(remainder=remainder, shuffle=shuffle)))
        assert np.array_equal(order.indices(update), straight[update])


def test_epochs_and_seeds_differ_and_no_shuffle_is_the_identity() -> None:
    order = make_order()
    assert not np.array_equal(epoch_samples(order, 0), epoch_samples(order, 1))
    assert not np.array_equal(epoch_samples(order, 0), epoch_samples(make_order(seed=4), 0))
    assert np.array_equal(epoch_samples(make_order(shuffle=False), 3), np.arange(48))


def test_a_shorter_epoch_takes_the_first_samples_of_each_permutation() -> None:
    order = make_order(updates_per_epoch=2)
    assert np.array_equal(epoch_samples(order, 1), epoch_samples(make_order(), 1)[:16])
    assert [order.epoch_of(update) for update in range(5)] == [0, 0, 1, 1, 2]


def test_an_explicit_epoch_does_not_change_the_carried_stream() -> None:
    order = make_order(remainder="carry", updates_per_epoch=20)
    assert np.array_equal(order.rows(0, 30), make_order(remainder="carry").rows(0, 30))
    assert order.epoch_of(25) == 1


@pytest.mark.parametrize(("replicas", "micro"), [(1, 12), (1, 3), (2, 3), (3, 4), (4, 1), (12, 1)])
def test_the_cut_into_micro_batches_does_not_change_the_update(replicas: int, micro: int) -> None:
    whole = make_order(global_batch=12).indices(2)
    accumulation = 12 // (replicas * micro)
    parts = [
        whole[micro_batch_slice(step, replica=replica, replicas=replicas, micro=micro)]
        for step in range(accumulation)
        for replica in range(replicas)
    ]
    assert np.array_equal(np.concatenate(parts), whole)
    for replica in range(replicas):
        slots = replica_slots(global_batch=12, replica=replica, replicas=replicas, micro=micro)
        for step in range(accumulation):
            here = micro_batch_slice(step, replica=replica, replicas=replicas, micro=micro)
            assert np.array_equal(whole[slots[step]], whole[here])


def test_padding_repeats_the_first_sample() -> None:
    order = make_order(10, remainder="pad", shuffle=False)
    assert order.indices(1).tolist() == [8, 9, -1, -1, -1, -1, -1, -1]
    assert without_padding(order.indices(1)).tolist() == [8, 9, 8, 8, 8, 8, 8, 8]
    assert (order.real_samples(0), order.real_samples(1), order.real_samples(2)) == (8, 2, 8)


def test_an_epoch_with_empty_updates_is_a_mistake_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        make_order(50, global_batch=8, updates_per_epoch=7)
    with pytest.raises(AssertionError):
        SampleOrder(
            seed=0,
            samples=5,
            global_batch=2,
            updates_per_epoch=Fraction(5, 2),
            remainder="pad",
            shuffle=True,
        )


def test_passes_say_how_often_the_samples_were_gone_through() -> None:
    assert make_order(10, remainder="carry").passes(0, 3).tolist() == [
        [0] * 8,
        [0] * 2 + [1] * 6,
        [1] * 4 + [2] * 4,
    ]
    assert make_order(10, remainder="pad").passes(1, 3).tolist() == [[0] * 8, [1] * 8]
    assert make_order(10, remainder="trim").passes(1, 2).tolist() == [[1] * 8]


def test_bad_samples_are_not_usable() -> None:
    assert make_order(10).usable().tolist() == list(range(10))
    assert make_order(10, bad=(0, 3)).usable().tolist() == [1, 2, 4, 5, 6, 7, 8, 9]


@pytest.mark.parametrize("remainder", ["trim", "pad", "carry"])
@pytest.mark.parametrize("shuffle", [True, False])
def test_bad_samples_move_no_other_sample(remainder: Remainder, shuffle: bool) -> None:
    whole = make_order(remainder=remainder, shuffle=shuffle)
    bad = (3, 17, 49)
    marked = replace(whole, bad=bad)
    expected = whole.rows(0, 20)
    expected[np.isin(expected, bad)] = PADDING
    assert np.array_equal(marked.rows(0, 20), expected)
    counts = (expected != PADDING).sum(axis=1)
    assert [marked.real_samples(update) for update in range(20)] == counts.tolist()
    assert (counts < 8).any()


def test_padding_at_the_front_repeats_the_first_real_sample() -> None:
    order = replace(make_order(10, shuffle=False), bad=(0, 1, 5))
    assert order.indices(0).tolist() == [-1, -1, 2, 3, 4, -1, 6, 7]
    assert without_padding(order.indices(0)).tolist() == [2, 2, 2, 3, 4, 2, 6, 7]


def test_an_update_of_bad_samples_alone_weighs_nothing() -> None:
    order = replace(make_order(4, global_batch=2, shuffle=False), bad=(0, 1))
    assert order.indices(0).tolist() == [-1, -1]
    assert without_padding(order.rows(0, 2)).tolist() == [[0, 0], [2, 3]]
    assert (order.real_samples(0), order.real_samples(1)) == (1, 2)
