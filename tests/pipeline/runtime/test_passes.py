"""The passes of an update over stages: as many micro-batches as there are, and one loss."""

from dataclasses import replace
from typing import Any

import pytest
import torch

from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.schedules.by_name import SCHEDULE_NAMES
from tests.pipeline.staged import Subject, laid_out, subject_of
from tests.program.harness import worst_error


class _Padded(Subject):
    """The first few samples of another subject are real, and the rest of the update is padding."""

    def __init__(self, whole: Subject, *, real: int) -> None:
        self.__dict__.update(whole.__dict__)
        self.real = real

    def batches(self, group: ReplicaGroup) -> Any:
        batches = super().batches(group)
        weights = (torch.arange(len(self.batch.labels)) < self.real).to(self.batch.images)
        padded = MicroBatch(self.batch.images, self.batch.labels, weights, self.batch.slots)
        batches.feed.batch = padded  # type: ignore[attr-defined]
        batches.order = replace(batches.order, samples=self.real, remainder="pad")
        return batches


@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
@pytest.mark.parametrize("real", [13, 5, 2])
def test_an_update_may_have_fewer_micro_batches(real: int, schedule: str) -> None:
    subject = _Padded(subject_of("cifar_resnet8", torch.float64), real=real)
    expected = subject.plain()
    for replicas in (1, 2):
        plan = laid_out(subject.plans[1], schedule=schedule)
        found = subject.staged(plan, replicas=replicas)
        assert worst_error(expected.gradients, found.gradients) <= 1e-10
        assert found.loss == pytest.approx(expected.loss, rel=1e-12)
        assert found.reports == expected.reports


def test_a_replica_without_a_micro_batch_adds_nothing() -> None:
    subject = _Padded(subject_of("cifar_resnet8", torch.float64), real=2)
    subject.start_over()
    passes = subject.passes(laid_out(subject.plans[0]), group=ReplicaGroup(rank=1, size=2))
    loss, score = passes.run(0)
    assert (float(loss), float(score)) == (0.0, 0.0)
    assert not subject.parameters.gradients.any()


def test_tables_are_made_once_per_number_of_micro_batches() -> None:
    subject = subject_of("cifar_resnet8", torch.float64)
    passes = subject.passes(laid_out(subject.plans[0]))
    made: list[int] = []
    build = passes.schedule_of
    passes.schedule_of = lambda count: made.append(count) or build(count)  # type: ignore[func-returns-value]
    subject.start_over()
    losses = [float(passes.run(0)[0]) for _ in range(2)]
    assert made == [8]
    assert losses[0] == losses[1]
    subject.batch_norms.forget()


def test_where_another_rank_has_the_last_stage_the_loss_is_zero() -> None:
    subject = subject_of("cifar_resnet8", torch.float64)
    passes = subject.passes(laid_out(subject.plans[0]))
    passes.last = None
    subject.start_over()
    loss, score = passes.run(0)
    assert (float(loss), float(score)) == (0.0, 0.0)
    subject.batch_norms.forget()
    assert passes.batches.replicas == ALONE.size
