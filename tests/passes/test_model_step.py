"""The model and its loss as one function that may be compiled."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.layers.batch_norm import install_batch_norm_owner
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.known_layers import install_counter_dropout
from drivetrain.passes.model_step import LossHead, LossParts, ModelStep
from drivetrain.tasks.classification import ClassificationTask
from tests.devices.stand_in_compiler import CompilerError, compile_by

SAMPLES, CLASSES = 6, 4


def make_step(*, loss_scaling: float = 0.0) -> ModelStep:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Flatten(), nn.Dropout(0.5), nn.Linear(12, CLASSES)
    )
    context = UpdateContext(torch.device("cpu"))
    context.begin_forward(torch.arange(SAMPLES))
    install_counter_dropout(model, seed=1, context=context)
    owner = install_batch_norm_owner(model, kept_share=0.9)
    model.train()
    head = LossHead(task=ClassificationTask(), loss_scaling=loss_scaling)
    return ModelStep(forward=model, head=head, batch_norms=owner, context=context)


def make_batch(*, weights: Tensor | None = None, mixed: bool = False) -> MicroBatch:
    generator = torch.Generator().manual_seed(1)
    labels = torch.arange(SAMPLES) % CLASSES
    return MicroBatch(
        torch.rand(SAMPLES, 1, 4, 4, generator=generator),
        labels,
        weights,
        torch.arange(SAMPLES),
        partner_labels=labels.flip(0) if mixed else None,
        mix=torch.linspace(0.5, 1, SAMPLES) if mixed else None,
    )


def outcome(step: ModelStep, batch: MicroBatch, *, share: float) -> list[Tensor]:
    step.context.begin_forward(batch.slots)
    parts = step(batch, share=share)
    model = step.forward
    assert isinstance(model, nn.Module)
    model.zero_grad()
    parts.scaled.backward()  # type: ignore[no-untyped-call]
    return [*parts, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)]


@pytest.mark.parametrize("loss_scaling", [0.0, 3.0])
@pytest.mark.parametrize("mixed", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_what_is_handed_to_the_compiler_computes_the_same_bits(
    loss_scaling: float, mixed: bool, padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights = torch.tensor([1.0, 1, 1, 1, 0, 0]) if padded else None
    batch = make_batch(weights=weights, mixed=mixed)
    plain = outcome(make_step(loss_scaling=loss_scaling), batch, share=1 / 7)
    compile_by(monkeypatch)
    step = make_step(loss_scaling=loss_scaling)
    step.compilable.switch(True)
    found = outcome(step, batch, share=1 / 7)
    assert len(found) == len(plain) == 3 + 5 + 1
    assert all(torch.equal(one, other) for one, other in zip(found, plain, strict=True))
    assert step.compilable.is_on


def test_only_tensors_change_between_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another number, or something that is there now and missing then, would compile it again."""
    seen: list[list[object]] = []

    def note(function: Callable[..., LossParts], *arguments: Any) -> LossParts:
        seen.append([type(argument) for argument in arguments])
        return function(*arguments)

    compile_by(monkeypatch, note)
    step = make_step()
    step.compilable.switch(True)
    step(make_batch(), share=1 / 7)
    step(make_batch(weights=torch.ones(SAMPLES)), share=1 / 5)
    assert seen[0] == seen[1]


def test_compiled_layers_find_no_reports_of_earlier_micro_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    step = make_step()
    (layer,) = step.batch_norms.layers
    lengths: list[int] = []

    def note(function: Callable[..., LossParts], *arguments: Any) -> LossParts:
        lengths.append(len(layer.reported))
        return function(*arguments)

    compile_by(monkeypatch, note)
    step.compilable.switch(True)
    batches = [make_batch(), make_batch(mixed=True), make_batch()]
    for batch in batches:
        step(batch, share=1.0)
    assert lengths == [0, 0, 0]
    assert len(layer.reported) == 3


def test_a_failed_pass_reports_nothing_and_counts_no_dropout(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail_late(function: Callable[..., LossParts], *arguments: Any) -> LossParts:
        function(*arguments)
        raise CompilerError("at the end")

    compile_by(monkeypatch, fail_late)
    step = make_step()
    step.compilable.switch(True)
    found = outcome(step, make_batch(), share=1.0)
    assert len(step.batch_norms.layers[0].reported) == 1
    expected = outcome(make_step(), make_batch(), share=1.0)
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))
