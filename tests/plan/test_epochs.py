"""The length of epochs under every way of treating the remainder."""

from fractions import Fraction
from math import ceil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain.core.errors import BadInputError
from drivetrain.plan.epochs import EpochPlan, plan_epochs
from drivetrain.recipe.layout import BatchArithmetic
from drivetrain.recipe.schema import Remainder


def _plan(
    samples: int,
    *,
    micro: int = 8,
    accumulation: int = 8,
    replicas: int = 1,
    remainder: Remainder = "trim",
    updates: int | None = None,
    num_epochs: int = 1,
    max_updates: int | None = None,
    warns_of_skipped: bool = True,
) -> EpochPlan:
    return plan_epochs(
        samples=samples,
        batch=BatchArithmetic(micro=micro, replicas=replicas, accumulation=accumulation),
        remainder=remainder,
        weight_updates_per_epoch=updates,
        num_epochs=num_epochs,
        max_updates=max_updates,
        warns_of_skipped=warns_of_skipped,
    )


def test_what_rules_skip_is_counted_without_a_warning() -> None:
    plan = _plan(50000, warns_of_skipped=False)
    assert (plan.samples_unused, plan.warnings) == (16, ())


def test_case_19_cifar() -> None:
    plan = _plan(50000)
    assert (plan.weight_updates, plan.micro_batches, plan.samples_unused) == (781, 6248, 16)
    (warning,) = plan.warnings
    assert warning.startswith("The last 16 of 50000 training samples")
    assert "--remainder pad" in warning


@pytest.mark.parametrize(
    ("replicas", "accumulation", "used", "micro_batches"),
    [(1, 1, 59968, 937), (2, 1, 59904, 936), (1, 8, 59904, 936), (2, 8, 59392, 928)],
)
def test_mnist_tutorial_trims(replicas: int, accumulation: int, used: int, micro_batches: int) -> None:
    plan = _plan(60000, micro=64, replicas=replicas, accumulation=accumulation)
    assert plan.samples - plan.samples_unused == used
    assert plan.micro_batches == micro_batches


def test_pad_uses_every_sample() -> None:
    plan = _plan(50000, remainder="pad", num_epochs=3)
    assert (plan.weight_updates, plan.samples_unused, plan.total_updates) == (782, 0, 2346)
    assert plan.warnings == ()


def test_pad_of_less_than_one_batch_is_one_update() -> None:
    assert _plan(5, remainder="pad").weight_updates == 1


def test_carry_lets_epochs_end_inside_an_update() -> None:
    plan = _plan(96, remainder="carry", num_epochs=4)
    assert plan.updates_per_epoch == Fraction(3, 2)
    assert (plan.weight_updates, plan.total_updates, plan.samples_unused) == (1, 6, 0)
    assert [plan.epoch_of(update) for update in range(7)] == [0, 0, 1, 2, 2, 3, 4]
    assert plan.warnings == ()


def test_carry_warns_of_a_tail_left_out() -> None:
    plan = _plan(96, remainder="carry", num_epochs=3)
    assert plan.total_updates == 4
    (warning,) = plan.warnings
    assert "last 32 samples" in warning
    assert "--remainder pad" in warning


def test_carry_works_with_fewer_samples_than_a_batch() -> None:
    plan = _plan(16, remainder="carry", num_epochs=9)
    assert (plan.weight_updates, plan.total_updates) == (0, 2)
    assert plan.epoch_of(1) == 4


def test_carry_that_fills_no_batch_is_an_error() -> None:
    with pytest.raises(BadInputError, match=r"use --num-epochs 4 or more,"):
        _plan(16, remainder="carry", num_epochs=3)
    assert _plan(16, remainder="carry", num_epochs=4).total_updates == 1


def test_trim_of_too_few_samples_names_what_works() -> None:
    with pytest.raises(
        BadInputError, match=r"--global-batch-size 48 \(--gradient-accumulation-count 6\)"
    ) as error:
        _plan(50)
    assert "--remainder pad" in str(error.value)
    assert _plan(50, accumulation=6).weight_updates == 1


def test_trim_of_less_than_a_micro_batch_names_what_works() -> None:
    with pytest.raises(BadInputError, match=r"--micro-batch-size 2 --global-batch-size 4"):
        _plan(5, replicas=2)
    with pytest.raises(BadInputError, match="--remainder pad"):
        _plan(1, replicas=2)


def test_no_samples_is_an_error() -> None:
    with pytest.raises(BadInputError, match="no training samples"):
        _plan(0, remainder="pad")


@pytest.mark.parametrize("updates", [None, -1])
def test_unset_epoch_length_is_what_the_data_gives(updates: int | None) -> None:
    assert _plan(640, updates=updates).weight_updates == 10


def test_shorter_epochs_leave_samples_out() -> None:
    plan = _plan(640, updates=4, num_epochs=3)
    assert (plan.weight_updates, plan.samples_unused, plan.total_updates) == (4, 384, 12)
    assert _plan(640, updates=4, remainder="pad").samples_unused == 384
    assert plan.warnings == ()


def test_longer_epochs_than_the_data_are_an_error_unless_carried() -> None:
    with pytest.raises(BadInputError, match=r"--weight-updates-per-epoch 10 or less"):
        _plan(650, updates=11)
    with pytest.raises(BadInputError, match=r"--weight-updates-per-epoch 11 or less"):
        _plan(650, updates=12, remainder="pad")
    assert _plan(650, updates=11, remainder="pad").weight_updates == 11
    plan = _plan(650, updates=25, remainder="carry", num_epochs=2)
    assert (plan.updates_per_epoch, plan.total_updates, plan.warnings) == (Fraction(25), 50, ())


@pytest.mark.parametrize("updates", [0, -2])
def test_no_epoch_length_below_one(updates: int) -> None:
    with pytest.raises(BadInputError, match=f"--weight-updates-per-epoch {updates} "):
        _plan(640, updates=updates)


def test_max_updates_only_shortens() -> None:
    plan = _plan(640, num_epochs=3, max_updates=7)
    assert (plan.total_updates, plan.updates_of_all_epochs, plan.warnings) == (7, 30, ())
    longer = _plan(640, num_epochs=3, max_updates=41)
    assert longer.total_updates == 30
    (warning,) = longer.warnings
    assert "--max-updates 41" in warning
    assert "--num-epochs 5 would reach it" in warning


@given(samples=st.integers(1, 10**6), micro=st.integers(1, 64), accumulation=st.integers(1, 32))
def test_trimmed_and_used_samples_are_all_samples(samples: int, micro: int, accumulation: int) -> None:
    global_batch = micro * accumulation
    if samples < global_batch:
        return
    plan = _plan(samples, micro=micro, accumulation=accumulation)
    assert plan.weight_updates * global_batch + plan.samples_unused == samples
    assert 0 <= plan.samples_unused < global_batch


@given(
    samples=st.integers(1, 1000),
    global_batch=st.integers(1, 64),
    num_epochs=st.integers(64, 80),
    remainder=st.sampled_from(["pad", "carry"]),
)
def test_nothing_is_left_out_of_pad_and_carry(
    samples: int, global_batch: int, num_epochs: int, remainder: Remainder
) -> None:
    plan = _plan(samples, micro=global_batch, accumulation=1, remainder=remainder, num_epochs=num_epochs)
    seen = plan.total_updates * global_batch
    if remainder == "pad":
        assert plan.weight_updates == ceil(samples / global_batch)
        assert seen >= num_epochs * samples
    else:
        assert 0 <= num_epochs * samples - seen < global_batch
        assert plan.epoch_of(plan.total_updates) <= num_epochs
