"""The search: pruning keeps the best, limits hold, and no cut of --split-by is better."""

from dataclasses import replace
from itertools import combinations

import pytest

from drivetrain.planner.costs import Link
from drivetrain.planner.devices.links import Links
from drivetrain.planner.search import search as search_module
from drivetrain.planner.search.families import Family, families, least_seconds
from drivetrain.planner.search.layout import evaluate
from drivetrain.planner.search.problem import Problem, micro_batches_of
from drivetrain.planner.search.search import Searcher, search
from drivetrain.planner.search.segments import Segments
from tests.planner.search.problems import LINK, chain, random_problem


@pytest.mark.parametrize("seed", range(4))
def test_pruning_keeps_the_best(seed: int) -> None:
    problem = random_problem(seed)
    pruned, whole = search(problem, keep=3), search(problem, keep=3, prunes=False)
    assert [found.seconds for found in pruned.best] == [found.seconds for found in whole.best]
    assert pruned.examined < whole.examined == whole.families


def test_a_bound_that_is_too_high_would_lose_the_best(monkeypatch: pytest.MonkeyPatch) -> None:
    def too_high(problem: Problem, family: Family, segments: Segments) -> float:
        # The more devices, the worse: the order of the families is turned around.
        return 1e3 * family.replicas * family.devices_per_replica

    problem = random_problem(0)
    best = search(problem, keep=1).best[0]
    monkeypatch.setattr(search_module, "least_seconds", too_high)
    assert search(problem, keep=1).best[0].seconds > best.seconds


@pytest.mark.parametrize("seed", range(4))
def test_bounds_are_below_every_update_of_their_family(seed: int) -> None:
    problem = random_problem(seed, layers=6)
    searcher = Searcher(problem)
    for family in families(problem):
        least_s = least_seconds(problem, family, searcher.segments(family))
        for layout in searcher.layouts(family):
            found = evaluate(problem, searcher.segments(family), layout)
            assert found.seconds >= least_s * (1 - 1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_nearly_as_good_as_simulating_every_cut(seed: int) -> None:
    problem = replace(random_problem(seed, devices=3), stages=3, replicas=1, schedules=("1f1b",))
    best = next(found for found in search(problem).best if found.layout.device_of == (0, 1, 2))
    segments = Searcher(problem).segments(best.layout)
    every = [
        evaluate(problem, segments, replace(best.layout, firsts=firsts)).seconds
        for firsts in combinations(range(1, len(problem.layers)), 2)
    ]
    assert best.seconds <= 1.02 * min(every)


@pytest.mark.parametrize("seed", range(3))
def test_no_cut_to_compare_with_is_better(seed: int) -> None:
    problem = replace(random_problem(seed), stages=3, replicas=1)
    given = replace(problem, seeds=lambda stages: ((1, 2), (6, 7)) if stages == 3 else ())
    for found in search(given).best:
        segments = Searcher(given).segments(found.layout)
        for firsts in given.seeds(found.layout.stages):
            assert found.seconds <= evaluate(given, segments, replace(found.layout, firsts=firsts)).seconds


def test_a_memory_limit_holds_and_costs_time() -> None:
    free = random_problem(2, devices=3)
    fullest = search(free, keep=1).best[0]
    limited = replace(free, memory_limit=fullest.largest_bytes * 3 // 4)
    found = search(limited).best
    assert found
    assert all(each.largest_bytes <= fullest.largest_bytes * 3 // 4 for each in found)
    assert found[0].seconds > fullest.seconds


def test_below_every_layout_the_smallest_is_told() -> None:
    found = search(replace(random_problem(2), memory_limit=1000))
    assert found.best == ()
    assert found.smallest is not None
    assert found.smallest.largest_bytes > 1000


def test_the_smallest_layout_fits_its_own_memory() -> None:
    problem = random_problem(2)
    smallest = search(replace(problem, memory_limit=1000)).smallest
    assert smallest is not None
    assert search(replace(problem, memory_limit=smallest.largest_bytes)).best


def test_equal_layers_are_split_evenly() -> None:
    problem = replace(chain([1.0] * 8, devices=4), replicas=1, stages=4, schedules=("1f1b",))
    best = search(problem).best[0]
    assert best.layout.firsts == (2, 4, 6)


def test_devices_that_share_cores_are_not_used() -> None:
    problem = chain([1.0] * 8, devices=4)
    assert search(problem).best[0].layout.devices > 1
    assert search(replace(problem, shares_cores=True)).best[0].layout.devices == 1


def test_batch_norm_keeps_the_samples_that_it_normalises_together() -> None:
    problem = replace(chain([1.0] * 4, devices=4), micro_batch_size=8, global_batch=32, normalised_set=8)
    assert micro_batches_of(problem, replicas=4) == [(8, 1), (4, 2), (2, 4)]
    assert micro_batches_of(problem, replicas=3) == []
    assert micro_batches_of(replace(problem, normalised_set=None), replicas=2) == [
        (2, 1),
        (4, 1),
        (8, 1),
        (16, 1),
    ]


def test_what_was_typed_is_kept() -> None:
    problem = replace(chain([1.0] * 4, devices=4), micro_batch_size=8, global_batch=32, normalised_set=8)
    assert micro_batches_of(replace(problem, typed_micro=8), replicas=4) == [(8, 1)]
    assert micro_batches_of(replace(problem, typed_group=2), replicas=4) == [(4, 2)]
    assert micro_batches_of(replace(problem, normalised_set=None, typed_micro=4), replicas=2) == [(4, 1)]


_SLOW = Link(bytes_per_s=1e3, latency_s=1.0)


def test_only_what_crosses_hosts_waits_for_their_link() -> None:
    fast = chain([1.0] * 8, devices=4, size_bytes=1000)
    two_hosts = replace(fast, links=Links(device=LINK, host=_SLOW, devices_per_host=2, source="described"))
    near, same = (search(replace(each, replicas=1, stages=2)).best[0] for each in (two_hosts, fast))
    assert near.seconds == same.seconds
    far, close = (
        next(found for found in search(replace(each, replicas=1, stages=4)).best if found.layout.devices == 4)
        for each in (two_hosts, fast)
    )
    assert far.seconds > close.seconds + _SLOW.latency_s


def test_a_model_in_one_piece_hides_its_all_reduce() -> None:
    plain = replace(random_problem(0), stages=1, replicas=3, global_batch=24, buffer_bytes=100)
    overlapped, exposed = (search(replace(plain, on_cpu=on_cpu)).best[0].seconds for on_cpu in (False, True))
    assert overlapped < exposed


def test_processes_that_were_timed_with_half_the_cores_slow_down_beyond_two() -> None:
    problem = replace(chain([1.0] * 4, devices=4), shares_cores=True, timed_share=0.5)
    assert [problem.slowdown(count) for count in (1, 2, 4)] == [0.5, 1.0, 2.0]
    assert replace(problem, shares_cores=False).slowdown(4) == 1.0
