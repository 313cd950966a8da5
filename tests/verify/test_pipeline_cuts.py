"""The usual cuts of a model."""

import pytest

from drivetrain.schedules.by_name import SCHEDULE_NAMES
from drivetrain.schedules.divisibility import check_accumulation
from drivetrain.verify.pipeline_cuts import usual_pipelines


def test_every_schedule_a_loop_recomputation_and_real_ranks() -> None:
    cuts, notes = usual_pipelines(global_batch=8, fewest=2)
    assert [cut.schedule for cut in cuts[:5]] == list(SCHEDULE_NAMES)
    assert [cut.ranks for cut in cuts] == [1] * 7 + [2, 4]
    assert any(cut.mapping == (0, 1, 1, 0) for cut in cuts)
    assert any(cut.recomputation for cut in cuts)
    assert {cut.parts for cut in cuts} == {4}
    assert notes == []


@pytest.mark.parametrize("global_batch", [6, 8, 9, 12, 32])
@pytest.mark.parametrize("marked_stages", [0, 2, 3, 4, 6])
def test_no_schedule_gets_micro_batches_that_it_cannot_take(global_batch: int, marked_stages: int) -> None:
    cuts, notes = usual_pipelines(global_batch=global_batch, fewest=2, marked_stages=marked_stages)
    for cut in cuts:
        assert global_batch % cut.parts == 0
        assert global_batch // cut.parts >= 2
        assert cut.ranks <= 4
        check_accumulation(cut.schedule, stages=cut.stages, accumulation=cut.accumulation)
    has_grouped = any(cut.schedule == "grouped" for cut in cuts)
    assert has_grouped == (not notes)
    assert {cut.stages for cut in cuts} <= ({marked_stages} if marked_stages else {2, 4})


def test_a_batch_that_cannot_be_cut_has_no_pipelines() -> None:
    assert usual_pipelines(global_batch=3, fewest=2) == (
        [],
        ["stages: left out, as 3 samples make too few micro-batches for them"],
    )
    assert usual_pipelines(global_batch=8, fewest=2, marked_stages=1)[0] == []
