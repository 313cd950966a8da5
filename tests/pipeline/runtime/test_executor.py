"""Carrying out tables: who holds what for how long, what is sent, and what is handed back."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from drivetrain.core.errors import RunFailedError
from drivetrain.pipeline.runtime.placed_stages import PipelinePasses
from drivetrain.schedules.actions import Action
from drivetrain.schedules.by_name import SCHEDULE_NAMES
from drivetrain.schedules.observer import Part
from drivetrain.schedules.traffic import Message
from tests.pipeline.late_channel import LateChannel
from tests.pipeline.odd_models import RepeatedDropout, Views, WholeNumbers, cut_subject
from tests.pipeline.staged import MICRO_BATCHES, Subject, laid_out, subject_of
from tests.program.harness import worst_error
from tests.schedules.tables import altered

MAPPINGS = (
    (0, 1, 2, 3, 4, 5),
    (0, 1, 0, 1, 0, 1),
    (0, 0, 1, 0, 0, 0),
    (0, 1, 2, 2, 1, 0),
    (0, 0, 1, 1, 0, 1),
)
VIEW_SPLITS = ("flatten", "fold", "second", "same", "line")


def _check(subject: Subject, *, schedule: str, device_of: tuple[int, ...], recomputes: bool) -> None:
    """Over a channel that punishes everybody who uses what he has given back."""
    plan = laid_out(subject.plans[0], schedule=schedule, device_of=device_of, recomputes=recomputes)
    found = subject.staged(plan, change=_with_late_channel)
    assert worst_error(subject.plain().gradients, found.gradients) <= 1e-10


def _with_late_channel(passes: PipelinePasses) -> LateChannel:
    channel = LateChannel()
    passes.executor.channel = channel
    return channel


@pytest.mark.parametrize("recomputes", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
def test_memory_is_given_back_when_nobody_needs_it(schedule: str, recomputes: bool) -> None:
    torch.manual_seed(0)
    subject = cut_subject(Views(), *VIEW_SPLITS)
    for device_of in MAPPINGS:
        _check(subject, schedule=schedule, device_of=device_of, recomputes=recomputes)


@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
def test_everything_received_is_given_back_where_no_memory_is_shared(schedule: str) -> None:
    subject = subject_of("unet_same", torch.float64)
    plan = laid_out(subject.plans[1], schedule=schedule)
    channels: list[LateChannel] = []
    subject.staged(plan, change=lambda passes: channels.append(_with_late_channel(passes)))
    edges = len(subject.placed(plan).cut.edges)
    assert channels[0].given_back == 2 * edges * MICRO_BATCHES


def test_each_message_is_sent_once() -> None:
    subject = subject_of("unet_same", torch.float64)
    plan = laid_out(subject.plans[1], device_of=(0, 1, 1, 0))
    channels: list[LateChannel] = []
    subject.staged(plan, change=lambda passes: channels.append(_with_late_channel(passes)))
    sent: Sequence[Message] = channels[0].sent
    assert len(sent) == len(set(sent))
    skips = [one for one in sent if one.value == "encoder_block_0_relu_1" and not one.is_gradient]
    # Its second reader lies on the device that made it.
    assert [(one.from_stage, one.to_stage) for one in skips] == [(0, 1)] * MICRO_BATCHES


def test_whole_numbers_travel_forward_alone() -> None:
    torch.manual_seed(0)
    subject = cut_subject(WholeNumbers(), "pool", "places")
    edges = {edge.value: edge.has_gradient for edge in subject.placed(subject.plans[0]).cut.edges}
    assert edges["argmax"] is False
    assert all(has for value, has in edges.items() if value != "argmax")
    for schedule in SCHEDULE_NAMES:
        for recomputes in (False, True):
            _check(subject, schedule=schedule, device_of=(0, 1, 2), recomputes=recomputes)


@pytest.mark.parametrize("recomputes", [False, True], ids=["kept", "recomputed"])
def test_dropout_in_several_places_draws_what_it_draws_in_one_piece(recomputes: bool) -> None:
    torch.manual_seed(0)
    subject = cut_subject(RepeatedDropout(), "second", "third")
    _check(subject, schedule="1f1b", device_of=(0, 1, 2), recomputes=recomputes)
    calls = [dict(stage.stage_facts.calls_before) for stage in subject.placed(subject.plans[0]).cut.stages]
    assert calls == [{"drop": 0}, {"drop": 1}, {"drop": 2}]


def test_dropout_that_forgot_its_earlier_uses_is_noticed() -> None:
    torch.manual_seed(0)
    subject = cut_subject(RepeatedDropout(), "second", "third")
    expected = subject.plain()

    def forget(passes: PipelinePasses) -> None:
        for runner in passes.executor._runners.values():
            runner._uses_before = {}

    found = subject.staged(laid_out(subject.plans[0]), change=forget)
    assert not np.allclose(expected.gradients["first.weight"], found.gradients["first.weight"], rtol=1e-3)


class _Still(nn.Module):
    """Nothing to learn in its first and in its third layer."""

    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Conv2d(3, 4, 3).requires_grad_(False)
        self.norm = nn.BatchNorm2d(4).requires_grad_(False)
        self.learns = nn.Conv2d(4, 4, 2)
        self.relu = nn.ReLU()
        self.flatten = nn.Flatten()
        self.line = nn.Linear(4, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        features = self.learns(self.norm(self.frozen(images)))
        logits: torch.Tensor = self.line(self.flatten(self.relu(features)))
        return logits


@pytest.mark.parametrize("recomputes", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
def test_stages_with_nothing_to_learn(schedule: str, recomputes: bool) -> None:
    torch.manual_seed(0)
    subject = cut_subject(_Still(), "learns", "relu", "line")
    _check(subject, schedule=schedule, device_of=(0, 1, 2, 3), recomputes=recomputes)
    parameters = [stage.stage_facts.parameter_names for stage in subject.placed(subject.plans[0]).cut.stages]
    assert parameters[2] == ()


def test_one_stage_alone_may_recompute() -> None:
    subject = subject_of("unet_same", torch.float64)
    expected = subject.plain()
    found = subject.staged(laid_out(subject.plans[1], recomputes=(False, True, False, False)))
    assert all(np.array_equal(expected.gradients[key], found.gradients[key]) for key in expected.gradients)
    assert found.reports == expected.reports


def test_a_table_that_waits_for_itself_is_an_error() -> None:
    subject = subject_of("cifar_resnet8", torch.float64)
    passes = subject.passes(laid_out(subject.plans[0]))
    right = passes.schedule_of

    def wrong(micro_batches: int) -> object:
        return altered(right(micro_batches), 0, lambda row: row.insert(0, row.pop(4)))

    passes.schedule_of = wrong  # type: ignore[assignment]
    subject.start_over()
    with pytest.raises(RunFailedError, match="The 1f1b schedule is deadlocked: no device can continue"):
        passes.run(0)
    subject.batch_norms.forget()


class _Seen:
    """Writes down what happens."""

    sees_ends = True

    def __init__(self) -> None:
        self.begun: list[tuple[int, str]] = []
        self.parts: list[tuple[int, str, str]] = []

    def begins(self, device: int, action: Action) -> None:
        self.begun.append((device, str(action)))

    def ended(self, device: int, what: str, action: Action, *, start_s: float) -> None:
        self.parts.append((device, what, str(action)))

    def part_begins(self, update: int, part: Part) -> None: ...

    def part_ended(self, update: int, part: Part, *, start_s: float) -> None: ...


def test_an_observer_sees_every_action_of_every_device() -> None:
    subject = subject_of("cifar_resnet8", torch.float64)
    plan = laid_out(subject.plans[0], schedule="zero-bubble")
    seen = _Seen()
    subject.staged(plan, change=lambda passes: setattr(passes.executor, "observer", seen))
    schedule = plan.schedule()
    for device, row in enumerate(schedule.table):
        assert [what for place, what in seen.begun if place == device] == [str(action) for action in row]
    assert (0, "forward", "F0@0") in seen.parts
    assert (0, "send", "F0@0") in seen.parts
    assert (1, "wait", "F0@1") in seen.parts
    assert (0, "weight", "W0@0") in seen.parts
    assert (0, "wait", "F0@0") not in seen.parts


def test_stages_are_told_to_be_done_once_an_update_each() -> None:
    subject = subject_of("cifar_resnet8", torch.float64)
    passes = subject.passes(laid_out(subject.plans[1]))
    done: list[int] = []
    passes.executor._on_stage_done = done.append
    subject.start_over()
    passes.run(0)
    assert sorted(done) == [0, 1, 2, 3]
    assert done[0] == 3
    passes.run(0)
    assert sorted(done[4:]) == [0, 1, 2, 3]
    subject.batch_norms.forget()


def test_images_are_let_go_of_once_every_stage_has_begun_them() -> None:
    subject = subject_of("unet_same", torch.float64)
    plan = replace(laid_out(subject.plans[1]), schedule_name="sequential")
    kept: list[int] = []
    passes = subject.passes(plan)
    run = passes.executor._forward

    def watched(runner: object, action: object, work: object) -> object:
        outputs = run(runner, action, work)  # type: ignore[arg-type]
        kept.append(len(work._fetched))  # type: ignore[attr-defined]
        return outputs

    passes.executor._forward = watched  # type: ignore[assignment,method-assign]
    subject.start_over()
    passes.run(0)
    assert max(kept) == 1
    assert kept[-1] == 0
    subject.batch_norms.forget()
