"""Images through stages on ranks of their own, without training."""

import torch
from torch import Tensor

from drivetrain.pipeline.runtime.channels import ValueSpec
from drivetrain.pipeline.runtime.staged_forward import find_specs
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from tests.pipeline.odd_models import WholeNumbers, WithOwnNorm, cut_subject
from tests.pipeline.rank_programs import Job, cut_options, program_of
from tests.pipeline.staged import Subject, laid_out, subject_of

SIZES = (3, 1, 5, 3, 3)


def _logits(group: ReplicaGroup, job: Job) -> tuple[list[Tensor], bool, list[tuple[int, ...]]]:
    """The output for batches of several sizes, whether it is the model's here, and the statistics' shapes."""
    program = program_of(group, job)
    before = {name: value.clone() for name, value in program.model.state_dict().items()}
    program.model.eval()
    generator = torch.Generator().manual_seed(0)
    found = []
    for size in SIZES:
        images = torch.rand(size, 1, 10, 10, generator=generator)
        with torch.inference_mode():
            found.append(program.forward(images.contiguous(memory_format=torch.channels_last)).clone())
    after = program.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    has_last = program.stages is None or program.stages.last in program.stages.own
    return found, has_last, [tuple(value.shape) for value in found]


def test_logits_come_out_where_the_last_stage_is(rank_pool: RankPool) -> None:
    expected, _, shapes = _logits(ALONE, Job(kind="unet_same", options={}))
    for device_of in ((0, 1, 2, 3), (0, 1, 1, 0)):
        options = cut_options("unet_same", device_of=device_of)
        parts = rank_pool.run(_logits, Job(kind="unet_same", options=options), ranks=max(device_of) + 1)
        assert [has_last for _, has_last, _ in parts].count(True) == 1
        for found, has_last, own_shapes in parts:
            assert own_shapes == shapes
            for one, other in zip(expected, found, strict=True):
                assert torch.equal(other, one if has_last else torch.zeros_like(one))


def _specs(subject: Subject, *, stages: int = 0) -> dict[str, ValueSpec]:
    plan = laid_out(subject.plans[stages])
    placed = subject.placed(plan)
    return find_specs(
        plan,
        subject.runners(placed),
        edges=placed.cut.edges,
        images=torch.zeros_like(subject.batch.images[: subject.micro]),
        devices=ALONE,
    )


def test_shapes_and_types_are_those_of_the_plan() -> None:
    for name in ("cifar_resnet8", "unet_same"):
        subject = subject_of(name, torch.float64)
        planned = subject.plans[1].shapes.values
        specs = _specs(subject, stages=1)
        assert {edge.value for edge in subject.placed(subject.plans[1]).cut.edges} < specs.keys()
        for value, spec in specs.items():
            assert (spec.shape, spec.dtype) == (planned[value].shape, planned[value].dtype)


def test_whole_numbers_are_such() -> None:
    torch.manual_seed(0)
    assert _specs(cut_subject(WholeNumbers(), "pool", "places"))["argmax"] == ValueSpec(
        (2,), torch.int64, (0,)
    )


def test_no_statistic_moves_and_no_mode_changes() -> None:
    torch.manual_seed(0)
    for subject in (subject_of("unet_same", torch.float64), cut_subject(WithOwnNorm(), "second")):
        subject.start_over()
        subject.model.get_submodule("").training = True
        before = {name: value.clone() for name, value in subject.model.state_dict().items()}
        modes = {name: module.training for name, module in subject.model.named_modules()}
        _specs(subject)
        after = subject.model.state_dict()
        assert all(torch.equal(before[name], after[name]) for name in before)
        assert modes == {name: module.training for name, module in subject.model.named_modules()}
        assert not any(layer.reported for layer in subject.batch_norms.layers)
        assert subject.context.uses == {}
