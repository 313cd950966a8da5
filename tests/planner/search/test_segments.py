"""What runs of layers cost: seconds, bytes received once per stage, memory kept."""

from dataclasses import replace

import pytest

from drivetrain.planner.search.layout import edges_of
from drivetrain.planner.search.problem import Problem, Saved, Value
from drivetrain.planner.search.segments import find_segments
from tests.planner.search.problems import LINK, chain, random_problem


def _with_skip() -> Problem:
    """Six layers; what the first one returns is read by the second, the fourth and the fifth."""
    plain = chain([1.0] * 6, devices=2)
    skip = Value(name="skip", producer=0, consumers=(1, 3, 4), size_bytes=100)
    return replace(plain, values=[skip])


def test_a_skip_is_received_once_by_each_stage_that_reads_it() -> None:
    received = find_segments(_with_skip(), micro=1, link=LINK).received_bytes
    assert received[1, 2] == 100  # reads it once
    assert received[1, 6] == 100  # reads it three times
    assert received[2, 3] == 0  # it only passes by
    assert received[3, 5] == 100
    assert received[4, 6] == 100
    assert received[0, 6] == 0  # its own


def test_a_value_counted_at_every_reader_would_differ() -> None:
    every_reader = 3 * 100
    assert find_segments(_with_skip(), micro=1, link=LINK).received_bytes[1, 6] != every_reader


@pytest.mark.parametrize("seed", range(10))
def test_received_bytes_are_those_of_the_edges(seed: int) -> None:
    problem = random_problem(seed)
    segments = find_segments(problem, micro=4, link=LINK)
    firsts = (2, 5)
    edges, bytes_of = edges_of(problem, firsts=firsts, micro=4)
    for stage, place in enumerate([(0, 2), (2, 5), (5, 8)]):
        sent = sum(bytes_of[edge.value] for edge in edges if edge.consumer == stage)
        assert segments.received_bytes[place] == sent


def test_kept_memory_counts_where_producer_and_saver_are_inside() -> None:
    problem = replace(chain([1.0] * 4, devices=2), saved=[Saved(producer=1, saver=2, size_bytes=10)])
    saved = find_segments(problem, micro=1, link=LINK).saved_bytes
    assert saved[0, 4] == saved[1, 3] == 10
    assert saved[0, 2] == saved[2, 4] == 0


def test_times_and_bytes_follow_the_micro_batch() -> None:
    problem = random_problem(1)
    once, twice = (find_segments(problem, micro=micro, link=LINK) for micro in (4, 8))
    assert twice.total_s == pytest.approx(2 * once.total_s, rel=1e-12)
    assert (twice.received_bytes == 2 * once.received_bytes).all()
    assert (twice.weight_bytes == once.weight_bytes).all()


def test_a_smaller_micro_batch_takes_at_least_the_time_of_launches() -> None:
    problem = replace(chain([1.0, 0.1, 1.0, 1.0], devices=2), micro_batch_size=4, least_layer_s=0.5)
    smaller = find_segments(problem, micro=1, link=LINK)
    assert smaller.forward_s[0, 4] == pytest.approx(3 * 0.5 + 0.1)
    # What is known is not rounded up.
    assert find_segments(problem, micro=4, link=LINK).forward_s[0, 4] == pytest.approx(3.1)
