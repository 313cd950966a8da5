"""One stage at work: what it holds, recomputes, puts off and leaves alone."""

import numpy as np
import pytest
import torch
from torch import Tensor

from drivetrain.pipeline.runtime.stage_runner import Pass, StageRunner
from drivetrain.ranks.replica_group import ALONE
from tests.pipeline.odd_models import Views, WithOwnNorm, cut_subject
from tests.pipeline.staged import Subject, laid_out, subject_of


def _runner(subject: Subject, stage: int, *, schedule: str = "1f1b", recomputes: bool) -> StageRunner:
    plan = laid_out(subject.plans[0], schedule=schedule, recomputes=recomputes)
    return subject.runners(subject.placed(plan))[stage]


def _pass(subject: Subject) -> Pass:
    numbered = next(subject.batches(ALONE).of(0))
    return Pass(update=0, number=0, share=1.0, slots=numbered.batch.slots, labelled=numbered.batch)


def _images(subject: Subject) -> Tensor:
    return subject.batch.images[: subject.micro]


@pytest.mark.parametrize("recomputes", [False, True], ids=["kept", "recomputed"])
def test_a_stage_holds_a_micro_batch_until_its_backward_pass(recomputes: bool) -> None:
    subject = subject_of("cifar_resnet8", torch.float64)
    runner = _runner(subject, 0, recomputes=recomputes)
    outputs = runner.forward(5, _pass(subject), {runner.images: _images(subject)})
    assert runner.live == 1
    assert not any(value.requires_grad for value in outputs.values())
    gradients = runner.backward(5, {name: [torch.ones_like(value)] for name, value in outputs.items()})
    assert gradients == {}
    assert runner.live == 0
    subject.batch_norms.forget()


def test_weights_that_are_put_off_are_held_until_they_are_done() -> None:
    subject = subject_of("cifar_resnet8", torch.float64)
    subject.start_over()
    runner = _runner(subject, 0, schedule="zero-bubble", recomputes=False)
    outputs = runner.forward(0, _pass(subject), {runner.images: _images(subject)})
    runner.backward(0, {name: [torch.ones_like(value)] for name, value in outputs.items()})
    weight = subject.model.get_parameter(
        next(name for name in runner.module.stage_facts.parameter_names if name.endswith("conv.weight"))
    )
    assert weight.grad is not None
    assert not weight.grad.any()
    assert runner.live == 1
    runner.finish_weights(0)
    assert weight.grad.any()
    assert runner.live == 0
    subject.batch_norms.forget()


def test_gradients_of_several_readers_are_added_up() -> None:
    subject = subject_of("unet_same", torch.float64)
    found = []
    for parts in (1, 3):
        subject.start_over()
        runner = _runner(subject, 0, recomputes=False)
        outputs = runner.forward(0, _pass(subject), {runner.images: _images(subject)})
        ones = {name: [torch.full_like(value, 3 / parts)] * parts for name, value in outputs.items()}
        runner.backward(0, ones)
        found.append(subject.parameters.gradients.clone())
        subject.batch_norms.forget()
    assert torch.allclose(found[0], found[1], rtol=1e-12, atol=0)
    assert found[0].any()


def test_an_output_nobody_asks_a_gradient_of_has_none() -> None:
    subject = subject_of("unet_same", torch.float64)
    subject.start_over()
    runner = _runner(subject, 0, recomputes=False)
    runner.forward(0, _pass(subject), {runner.images: _images(subject)})
    assert runner.backward(0, {}) == {}
    assert not subject.parameters.gradients.any()
    subject.batch_norms.forget()


def test_a_recomputed_stage_may_hand_on_a_view_of_its_input() -> None:
    torch.manual_seed(0)
    subject = cut_subject(Views(), "flatten", "fold")
    runner = _runner(subject, 1, recomputes=True)
    (name,) = runner.module.stage_facts.inputs
    given = torch.randn(2, 4, 4, 4, dtype=torch.float64)
    outputs = runner.forward(0, _pass(subject), {name: given})
    gradients = runner.backward(0, {key: [2 * torch.ones_like(value)] for key, value in outputs.items()})
    assert torch.equal(gradients[name], 2 * torch.ones_like(given))


@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
def test_norms_of_a_users_own_kind_move_once_where_a_stage_recomputes(schedule: str) -> None:
    torch.manual_seed(0)
    subject = cut_subject(WithOwnNorm(), "second")
    assert subject.batch_norms.unowned == ("norm",)
    expected = subject.plain()
    found = subject.staged(laid_out(subject.plans[0], schedule=schedule, recomputes=True))
    assert expected.statistics["norm.num_batches_tracked"] == 8
    for name in expected.statistics:
        assert np.array_equal(expected.statistics[name], found.statistics[name]), name
    for name in expected.gradients:
        assert np.array_equal(expected.gradients[name], found.gradients[name]), name


def test_evaluation_leaves_no_trace() -> None:
    subject = subject_of("unet_same", torch.float64)
    subject.start_over()
    plan = laid_out(subject.plans[0])
    runners = subject.runners(subject.placed(plan))
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    subject.model.eval()
    values = runners[0].evaluate(_images(subject), {})
    logits = runners[1].evaluate(_images(subject), values)[runners[1].output]
    with torch.no_grad():
        assert torch.equal(logits, subject.model(_images(subject)))
    subject.model.train()
    after = subject.model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
    assert [runner.live for runner in runners.values()] == [0, 0]
    assert not logits.requires_grad
