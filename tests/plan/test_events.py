"""Host events against the worked cases, and that executions partition the run."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drivetrain import make_plan
from drivetrain.core.errors import BadInputError
from drivetrain.plan.epochs import plan_epochs
from drivetrain.plan.events import HostEvents, nearest_divisor, parse_logs_per_epoch, plan_host_events
from drivetrain.recipe.layout import BatchArithmetic
from drivetrain.recipe.schema import Remainder

CIFAR_SAMPLES = 50000


def _events(
    logs_per_epoch: str = "1",
    *,
    samples: int = CIFAR_SAMPLES,
    accumulation: int = 8,
    replicas: int = 1,
    num_epochs: int = 6,
    max_updates: int | None = None,
    remainder: Remainder = "trim",
    log_every: int | None = None,
    steps_per_execution: int | None = None,
    evaluate_every: int | None = None,
    checkpoint_every: int | None = None,
) -> HostEvents:
    batch = BatchArithmetic(micro=8, replicas=replicas, accumulation=accumulation)
    epochs = plan_epochs(
        samples=samples,
        batch=batch,
        remainder=remainder,
        weight_updates_per_epoch=None,
        num_epochs=num_epochs,
        max_updates=max_updates,
    )
    return plan_host_events(
        batch=batch,
        epochs=epochs,
        logs_per_epoch=logs_per_epoch,
        log_every=log_every,
        steps_per_execution=steps_per_execution,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
    )


def _executions(events: HostEvents) -> list[int]:
    """The lengths of the executions of a whole run."""
    lengths, update = [], 0
    while update < events.total_updates:
        lengths.append(events.next_event(update) - update)
        update += lengths[-1]
    return lengths


@pytest.mark.parametrize(
    ("logs_per_epoch", "num_epochs", "frequency", "micro_batches", "calls", "warns"),
    [
        pytest.param("1", 6, 1, 6248, 6, False, id="case-22"),
        pytest.param("2", 6, 1, 6248, 6, True, id="case-23"),
        pytest.param("10", 6, 11, 568, 66, True, id="case-24"),
        pytest.param(".5", 6, 0.5, 12496, 3, False, id="case-25"),
        pytest.param("1/3", 6, 1 / 3, 18744, 2, False, id="case-26"),
        pytest.param("0", 6, 1 / 6, 37488, 1, True, id="case-28"),
        pytest.param(".5", 2, 0.5, 12496, 1, False, id="case-32"),
    ],
)
def test_logs_per_epoch(
    logs_per_epoch: str, num_epochs: int, frequency: float, micro_batches: int, calls: int, warns: bool
) -> None:
    events = _events(logs_per_epoch, num_epochs=num_epochs)
    assert events.logs_per_epoch == frequency
    assert events.execution_updates * 8 == micro_batches
    assert _executions(events) == [micro_batches // 8] * calls
    assert bool(events.warnings) == warns


def test_moved_frequency_is_said_with_both_numbers() -> None:
    (warning,) = _events("10").warnings
    assert "--logs-per-epoch 10 " in warning
    assert ", 11 logs per epoch" in warning


def test_whole_run_in_one_execution_is_said() -> None:
    (warning,) = _events("0").warnings
    assert "--logs-per-epoch 0" in warning
    assert "nothing is logged before the end of training" in warning


def test_case_27_uneven_epochs() -> None:
    with pytest.raises(
        BadInputError,
        match=r"^Logging once every 2\.0 epochs does not divide 5 epochs evenly; --logs-per-epoch 1 works",
    ):
        _events(".5", num_epochs=5)


def test_case_30_negative() -> None:
    with pytest.raises(BadInputError, match="--logs-per-epoch -1"):
        _events("-1")


def test_case_31_uneven_epochs_name_what_works() -> None:
    with pytest.raises(
        BadInputError,
        match=r"Logging once every 4\.0 epochs does not divide 6 epochs evenly; --logs-per-epoch 1/3 works",
    ):
        _events(".25")
    assert _events("1/3").execution_updates == 3 * 781


def test_frequency_below_one_moves_with_a_fraction() -> None:
    events = _events(".4", samples=7 * 64, num_epochs=5)
    assert events.total_updates == 35
    assert events.execution_updates == 35
    assert "nearest possible frequency, 1/5 logs per epoch" in events.warnings[0]


def test_max_updates_keeps_the_log_period() -> None:
    events = _events("11", max_updates=100)
    assert (events.log_updates, events.execution_updates) == (71, 71)
    assert _executions(events) == [71, 29]
    short = _events("1", max_updates=10)
    assert (short.log_updates, short.execution_updates) == (781, 10)


def test_carry_logs_at_the_nearest_whole_period() -> None:
    events = _events("1", samples=96, remainder="carry", num_epochs=4)
    assert events.total_updates == 6
    assert events.log_updates == 2
    assert "An epoch has 1.5 weight updates" in events.warnings[0]
    assert "every 2 updates" in events.warnings[0]
    assert events.evaluate_updates == Fraction(3, 2)
    assert [update for update in range(7) if events.is_evaluation(update)] == [2, 3, 5, 6]


def test_log_every_replaces_logs_per_epoch() -> None:
    events = _events("10", log_every=100)
    assert (events.log_updates, events.logs_per_epoch, events.warnings) == (100, 7.81, ())
    assert [events.is_log(update) for update in (0, 99, 100, 101, 4686)] == [False, False, True, False, True]


@pytest.mark.parametrize("replicas", [1, 2])
def test_steps_per_execution_counts_micro_batches_of_one_replica(replicas: int) -> None:
    assert _events(steps_per_execution=568, replicas=replicas).log_updates == 71


@pytest.mark.parametrize(("steps", "works"), [(30, "24 or 32"), (5, "8 or 16")])
def test_uneven_steps_name_the_nearest_multiples(steps: int, works: str) -> None:
    with pytest.raises(BadInputError, match=f"use --steps-per-execution {works}"):
        _events(steps_per_execution=steps)


def test_two_log_periods_are_an_error() -> None:
    with pytest.raises(BadInputError, match="--log-every 10 and --steps-per-execution 80"):
        _events(log_every=10, steps_per_execution=80)


def test_defaults_evaluate_per_epoch_and_checkpoint_at_logs() -> None:
    events = _events("11")
    assert (events.evaluate_updates, events.checkpoint_updates) == (Fraction(781), 71)
    assert _events(log_every=2000).evaluate_updates == 781


@pytest.mark.parametrize(("logs_per_epoch", "updates"), [("0", 4686), ("0.5", 1562)])
def test_validation_does_not_cut_what_spans_epochs_unless_asked(logs_per_epoch: str, updates: int) -> None:
    assert _events(logs_per_epoch).evaluate_updates == updates
    assert not _events(logs_per_epoch).evaluation_is_asked_for
    assert _events(logs_per_epoch, evaluate_every=781).evaluate_updates == 781
    assert _events(logs_per_epoch, evaluate_every=781).evaluation_is_asked_for


def test_other_events_cut_executions_anywhere() -> None:
    events = _events(samples=640, num_epochs=2, evaluate_every=7, checkpoint_every=4)
    assert _executions(events) == [4, 3, 1, 2, 2, 2, 2, 4]
    assert events.execution_updates == 10


def test_events_longer_than_the_run_are_said() -> None:
    events = _events(
        samples=640, num_epochs=1, steps_per_execution=160, evaluate_every=11, checkpoint_every=10
    )
    assert [warning.split(" is ")[0] for warning in events.warnings] == [
        "--steps-per-execution 160",
        "--evaluate-every 11",
    ]
    assert _executions(events) == [10]


_PERIODS = st.none() | st.integers(1, 60)


@given(
    samples=st.integers(64, 3000),
    num_epochs=st.integers(1, 5),
    remainder=st.sampled_from(["trim", "pad", "carry"]),
    max_updates=_PERIODS,
    logs_per_epoch=st.sampled_from(["0", "1", "2", "3.5", "7"]),
    evaluate_every=_PERIODS,
    checkpoint_every=_PERIODS,
)
def test_executions_partition_the_run(
    samples: int,
    num_epochs: int,
    remainder: Remainder,
    max_updates: int | None,
    logs_per_epoch: str,
    evaluate_every: int | None,
    checkpoint_every: int | None,
) -> None:
    events = _events(
        logs_per_epoch,
        samples=samples,
        num_epochs=num_epochs,
        remainder=remainder,
        max_updates=max_updates,
        evaluate_every=evaluate_every,
        checkpoint_every=checkpoint_every,
    )
    lengths = _executions(events)
    assert sum(lengths) == events.total_updates
    assert min(lengths) >= 1
    ends = {sum(lengths[: index + 1]) for index in range(len(lengths))}
    due = {update for update in range(events.total_updates + 1) if _any_due(events, update)}
    assert ends == due
    last = events.total_updates
    assert events.is_log(last)
    assert events.is_evaluation(last)
    assert events.is_checkpoint(last)


def _any_due(events: HostEvents, update: int) -> bool:
    return events.is_log(update) or events.is_evaluation(update) or events.is_checkpoint(update)


@given(updates=st.lists(st.integers(0, 200), min_size=2, max_size=2), period=st.integers(1, 50))
def test_next_event_is_monotone(updates: list[int], period: int) -> None:
    events = _events(samples=6400, num_epochs=2, log_every=period, evaluate_every=13)
    earlier, later = sorted(updates)
    assert events.next_event(earlier) <= events.next_event(later) <= events.total_updates


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2", Fraction(2)),
        ("0.5", Fraction(1, 2)),
        (".5", Fraction(1, 2)),
        ("1/3", Fraction(1, 3)),
        (" 1/3 ", Fraction(1, 3)),
        (str(1 / 3), Fraction(1, 3)),
        ("0.333", Fraction(333, 1000)),
        ("1.0", Fraction(1)),
        ("0", Fraction(0)),
        ("1e-9", Fraction(1, 10**9)),
    ],
)
def test_frequencies_are_read_exactly(text: str, value: Fraction) -> None:
    assert parse_logs_per_epoch(text) == value


@pytest.mark.parametrize("text", ["", "often", "1/0", "nan", "inf"])
def test_what_is_no_number_is_an_error(text: str) -> None:
    with pytest.raises(BadInputError, match="--logs-per-epoch"):
        parse_logs_per_epoch(text)


@pytest.mark.parametrize(("number", "target"), [(4, 2), (100, 10), (36, 6), (9, 3), (16, 4)])
def test_square_roots_are_divisors(number: int, target: int) -> None:
    assert nearest_divisor(number, target=target) == target


def test_of_two_equally_near_divisors_the_larger_is_taken() -> None:
    assert nearest_divisor(12, target=5) == 6
    assert nearest_divisor(15, target=4) == 5


@given(number=st.integers(1, 5000), target=st.fractions(0, 6000, max_denominator=100))
def test_nearest_divisor_is_the_nearest_of_all(number: int, target: Fraction) -> None:
    found = nearest_divisor(number, target=target)
    divisors = [candidate for candidate in range(1, number + 1) if number % candidate == 0]
    distance = min(abs(candidate - target) for candidate in divisors)
    assert found == max(candidate for candidate in divisors if abs(candidate - target) == distance)


@pytest.mark.parametrize("digits", [19, 60])
def test_a_third_written_with_many_digits_is_a_third(digits: int) -> None:
    for written in (f"0.{'3' * digits}", float(f"0.{'3' * digits}")):
        plan = make_plan(dataset="digits", num_epochs=3, logs_per_epoch=written)
        assert plan["execution"]["weight_updates"] == plan["total_updates"]
