"""What travels between stages is found out by a pass that leaves no trace."""

import torch

from drivetrain.pipeline.runtime.rank_channel import ValueSpec
from drivetrain.pipeline.runtime.value_specs import find_specs
from drivetrain.ranks.replica_group import ALONE
from tests.pipeline.odd_models import WholeNumbers, WithOwnNorm, cut_subject
from tests.pipeline.staged import Subject, laid_out, subject_of


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
    assert _specs(cut_subject(WholeNumbers(), "pool", "places"))["argmax"] == ValueSpec((2,), torch.int64)


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
