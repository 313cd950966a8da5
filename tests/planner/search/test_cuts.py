"""Dynamic programming over cuts against trying all of them."""

from itertools import combinations, pairwise

import numpy as np
import pytest

from drivetrain.planner.search.cuts import FoundCut, StageTables, best_cuts, objective

_SEEDS = range(30)


def _random_tables(seed: int, *, stages: int = 4, bounds: int = 9) -> StageTables:
    draw = np.random.default_rng(seed)
    slowest = [draw.uniform(1, 10, (bounds, bounds)) for _ in range(stages)]
    path = [draw.uniform(1, 10, (bounds, bounds)) for _ in range(stages)]
    for table in slowest:
        table[draw.uniform(size=table.shape) < 0.2] = np.inf
    return StageTables(slowest=slowest, path=path)


def _all_cuts(tables: StageTables) -> list[FoundCut]:
    last = len(tables.slowest[0]) - 1
    found = []
    for firsts in combinations(range(1, last), tables.stages - 1):
        places = list(enumerate(pairwise((0, *firsts, last))))
        slowest_s = max(float(tables.slowest[stage][place]) for stage, place in places)
        path_s = sum(float(tables.path[stage][place]) for stage, place in places)
        if np.isfinite(slowest_s):
            found.append(FoundCut(firsts=firsts, slowest_s=slowest_s, path_s=path_s))
    return found


@pytest.mark.parametrize("seed", _SEEDS)
@pytest.mark.parametrize("micro_batches", [1, 2, 7, 1000])
def test_equal_to_trying_all_cuts(seed: int, micro_batches: int) -> None:
    tables = _random_tables(seed)
    wanted = min((objective(cut, micro_batches=micro_batches) for cut in _all_cuts(tables)), default=None)
    found = best_cuts(tables, micro_batches=micro_batches)
    if wanted is None:
        assert not found
    else:
        assert objective(found[0], micro_batches=micro_batches) == pytest.approx(wanted, rel=1e-12)


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_cut_is_what_it_says(seed: int) -> None:
    tables = _random_tables(seed)
    every = {cut.firsts: cut for cut in _all_cuts(tables)}
    for cut in best_cuts(tables, micro_batches=4):
        assert cut.slowest_s == every[cut.firsts].slowest_s
        assert cut.path_s == pytest.approx(every[cut.firsts].path_s, rel=1e-12)


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_bound_at_the_best_keeps_it_and_one_below_loses_it(seed: int) -> None:
    tables = _random_tables(seed)
    found = best_cuts(tables, micro_batches=5)
    if not found:
        return
    best = objective(found[0], micro_batches=5)
    assert best_cuts(tables, micro_batches=5, at_most=best)[0].firsts == found[0].firsts
    assert best_cuts(tables, micro_batches=5, at_most=0.999 * best) == []


def test_no_cut_if_a_stage_is_impossible() -> None:
    tables = _random_tables(0)
    tables.slowest[1][:] = np.inf
    assert best_cuts(tables, micro_batches=3) == []


def test_one_stage_has_no_first_layers() -> None:
    assert [cut.firsts for cut in best_cuts(_random_tables(3, stages=1), micro_batches=3)] in ([()], [])
