"""How the rows of a search are timed and ordered, and how sure the order is."""

from dataclasses import dataclass, field, replace

from drivetrain.planner.search.from_recipe import problem_from_recipe
from drivetrain.planner.search.judge import Judge
from drivetrain.planner.search.layout import Evaluated, Layout
from drivetrain.planner.search.result import search_layouts
from drivetrain.planner.search.subject import Subject, subject_of
from drivetrain.recipe.load import resolve_recipe


@dataclass(frozen=True, kw_only=True)
class _Slow(Judge):
    """Measures: a model in stages takes twice as long as the search says, one in one piece a second."""

    measured: list[Layout] = field(default_factory=list)

    def timed(self, found: Evaluated) -> Evaluated:
        self.measured.append(found.layout)
        is_split = found.layout.devices_per_replica > 1
        return replace(found, seconds=2 * found.seconds if is_split else 1.0)


def _subject() -> Subject:
    values = {"model": "toy_model", "dataset": "synthetic", "dataset_size": 64, "micro_batch_size": 4}
    return subject_of(resolve_recipe(overrides={**values, "device": "cpu", "global_batch_size": 16}))


def test_of_the_rows_with_stages_one_is_measured_and_scales_the_others() -> None:
    subject = _subject()
    problem = problem_from_recipe(subject, devices=3)
    plain = search_layouts(subject, problem)
    judge = _Slow(subject=subject)
    found = search_layouts(subject, problem, judge=judge)
    known = {row.found.layout: row.found.seconds for row in plain.rows}
    split = [row.found for row in found.rows if row.found.layout.devices_per_replica > 1]
    assert len(split) > 1
    assert all(each.seconds == 2 * known[each.layout] for each in split if each.layout in known)
    assert sum(layout.devices_per_replica > 1 for layout in judge.measured) == 1
    assert {row.found.seconds for row in found.rows if row.found.layout.devices_per_replica == 1} == {1.0}
    assert [row.found.seconds for row in found.rows] == sorted(row.found.seconds for row in found.rows)


def test_how_sure_says_where_the_times_are_from() -> None:
    subject = _subject()
    result = search_layouts(subject, problem_from_recipe(subject, devices=2))
    assert "from operations alone and may be wrong by more than 25 %" in result.how_sure
    described = replace(result, assumes_times=False)
    assert "from the device's description and may be wrong by 25 %" in described.how_sure
    assert replace(result, source="measured").margin == 0.15
    replicas = any(row.found.layout.replicas > 1 for row in result.rows)
    assert replace(result, source="measured", shares_cores=True).margin == (0.35 if replicas else 0.15)
