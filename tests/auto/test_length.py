"""The search among networks by timing few of them, and the length that follows."""

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import pytest

from drivetrain.auto.length import Length, choose_length
from drivetrain.auto.rules.batch import decide_batch
from drivetrain.auto.rules.networks import Network, networks_for
from tests.auto.fingerprints import KINDS, case_of


def _chosen(
    kind: str, *, unit_s: float, left_s: Iterator[float], **typed: Any
) -> tuple[Length, list[str], list[Network]]:
    """The length, the networks that were timed and all candidates; time grows with their work."""
    case = case_of(KINDS[kind], typed)
    decide_batch(case)
    timed: list[str] = []

    def time(network: Network, _epochs: int) -> float:
        timed.append(str(network))
        return unit_s * network.work

    return choose_length(case, time=time, left_s=lambda: next(left_s)), timed, networks_for(case)


def test_the_largest_network_where_there_is_time() -> None:
    length, timed, networks = _chosen("photographs", unit_s=1e-9, left_s=repeat(10_000.0))
    assert length.network == networks[0]
    assert (length.epochs, len(timed)) == (300, 2)
    assert length.why_epochs.endswith("and more hardly helps")
    assert "one of the largest" in length.why_network


def test_the_fastest_network_where_there_is_none() -> None:
    length, _, networks = _chosen("photographs", unit_s=1e-3, left_s=repeat(10.0))
    assert length.network == networks[-1]
    assert "one of the fastest" in length.why_network
    assert length.most_updates == 1


def test_a_network_in_between() -> None:
    length, timed, networks = _chosen("photographs", unit_s=1e-7, left_s=repeat(100.0))
    assert networks.index(length.network) not in (0, len(networks) - 1)
    assert str(length.network) in timed
    work = length.network.work * 1e-7
    # At least 50 passes, and no larger candidate has as many.
    assert work * 640 * 50 <= 90.0
    larger = networks[networks.index(length.network) - 1]
    assert larger.work * 1e-7 * 640 * 50 > 90.0


def test_timing_ends_when_it_takes_too_long() -> None:
    left_s = chain([100.0, 60.0], repeat(60.0))
    length, timed, networks = _chosen("photographs", unit_s=1e-9, left_s=left_s)
    assert len(timed) == 1
    assert length.network == networks[0]


def test_a_typed_length_of_one_candidate_needs_no_timing() -> None:
    length, timed, _ = _chosen(
        "tiny images", unit_s=1.0, left_s=repeat(10.0), model="cifar_resnet8", num_epochs=30
    )
    assert timed == []
    assert (length.epochs, length.validations, length.why_epochs) == (30, 25, "")
    assert length.why_network == "the only candidate for these data and options"


@pytest.mark.parametrize(("updates", "epochs"), [(1, 1), (10, 1), (11, 2), (1000, 100)])
def test_epochs_follow_typed_updates(updates: int, epochs: int) -> None:
    length, *_ = _chosen(
        "photographs", unit_s=1e-9, left_s=repeat(100.0), max_updates=updates, micro_batch_size=64
    )
    assert length.epochs == epochs


def test_validation_takes_a_tenth_of_the_time() -> None:
    """Large images of which tiles are trained cost many tiles to validate."""
    few, *_ = _chosen("large masks of one size", unit_s=1e-10, left_s=repeat(60.0))
    many, *_ = _chosen("large masks of one size", unit_s=1e-10, left_s=repeat(6000.0))
    assert few.validations < many.validations <= 25
