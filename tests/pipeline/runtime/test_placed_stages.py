"""From a plan to the stages of one rank, ready to run."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.layers.reporting_batch_norm import ReportingBatchNorm
from drivetrain.passes.whole_model import PlainPasses
from drivetrain.pipeline.runtime.channels import LocalChannel
from drivetrain.pipeline.runtime.placed_stages import PipelinePasses, place_stages
from drivetrain.ranks.replica_group import ALL_ALONE, ALONE, RankGroups, ReplicaGroup
from drivetrain.schedules.by_name import SCHEDULE_NAMES
from tests.pipeline.odd_models import cut_subject
from tests.pipeline.rank_programs import Job, cut_options, measure_alone, program_of
from tests.pipeline.staged import CPU, Subject, laid_out, subject_of
from tests.program.harness import worst_error


def _on_device(rank: int, size: int) -> RankGroups:
    group = ReplicaGroup(rank=rank, size=size)
    return RankGroups(world=group, devices=group)


def test_a_rank_has_the_stages_of_its_device() -> None:
    subject = subject_of("unet_same", torch.float64)
    plan = laid_out(subject.plans[1], device_of=(0, 1, 1, 0))
    first, second = (place_stages(plan, groups=_on_device(rank, 2), device=CPU) for rank in (0, 1))
    assert (first.own, second.own) == ((0, 3), (1, 2))
    assert place_stages(plan, groups=ALL_ALONE, device=CPU).own == (0, 1, 2, 3)
    assert first.last == 3
    parameters = {name for name, _ in subject.model.named_parameters()}
    assert first.parameter_names | second.parameter_names == parameters
    assert not first.parameter_names & second.parameter_names
    assert first.state_names | second.state_names == subject.model.state_dict().keys()
    assert not first.state_names & second.state_names
    assert "encoder_block_0_norm_0" in first.module_names
    assert "encoder_block_0_norm_0" not in second.module_names
    assert not first.offloads


def test_cut_again_has_the_layers_of_training() -> None:
    job = Job(kind="cifar_resnet8", options=cut_options("cifar_resnet8", device_of=(0, 1)))
    program = program_of(ALONE, job)
    assert program.stages is not None
    norms = [
        module
        for stage in program.stages.cut.stages
        for module in stage.modules()
        if isinstance(module, ReportingBatchNorm | nn.BatchNorm2d)
    ]
    assert norms
    assert all(isinstance(module, ReportingBatchNorm) for module in norms)


class _Centred(nn.Module):
    mean: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.full((3, 1, 1), 0.5))
        self.first = nn.Conv2d(3, 4, 3)
        self.second = nn.Conv2d(4, 10, 2)

    def forward(self, images: Tensor) -> Tensor:
        return self.second(self.first(images - self.mean)).mean((2, 3))  # type: ignore[no-any-return]


def test_buffers_that_the_models_own_code_reads_move_with_its_stage() -> None:
    subject = cut_subject(_Centred(), "second")
    nowhere = replace(CPU, torch_device=torch.device("meta"))
    placed = place_stages(subject.plans[0], groups=ALL_ALONE, device=nowhere)
    for stages in (placed, placed.cut_again()):
        assert {tensor.device.type for tensor in stages.cut.stages[0].buffers()} == {"meta"}


def test_one_process_plays_all_devices() -> None:
    job = Job(kind="cifar_resnet8", options=cut_options("cifar_resnet8", device_of=(0, 1, 1, 0)))
    passes = program_of(ALONE, job).passes
    assert isinstance(passes, PipelinePasses)
    assert isinstance(passes.executor.channel, LocalChannel)
    assert isinstance(program_of(ALONE, Job(kind="cifar_resnet8", options={})).passes, PlainPasses)


@pytest.mark.parametrize("kind", ["cifar_resnet8", "unet_same"])
@pytest.mark.parametrize(
    "options",
    [
        {"recomputation": True},
        {"stages": 3},
        {"stages": 2, "stage_options": [{"stage": 0, "recomputation": True}]},
        {"stages": 2, "optimise_for": "balanced"},
    ],
    ids=["blocks", "three stages", "one recomputes", "balanced"],
)
def test_updates_in_one_process_have_the_bits_of_one_piece(kind: str, options: dict[str, Any]) -> None:
    expected = measure_alone(Job(kind=kind, options={}, updates=3))
    found = measure_alone(Job(kind=kind, options=options, updates=3))
    assert np.array_equal(expected.losses, found.losses)
    for name in expected.state:
        assert np.array_equal(expected.state[name], found.state[name]), name


def test_building_moves_no_statistic() -> None:
    for options in ({"recomputation": True}, {"stages": 2}):
        program = program_of(ALONE, Job(kind="unet_same", options=options))
        for layer in program.batch_norms.layers:
            assert not layer.running_mean.any()
            assert torch.equal(layer.running_var, torch.ones_like(layer.running_var))
            assert int(layer.num_batches_tracked) == 0
            assert not layer.reported


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
