"""Timing updates by a clock that a test holds in its hand."""

import random
from collections.abc import Iterator
from typing import cast

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from drivetrain.console.reporter import Reporter
from drivetrain.models.kept_values import give_own_memory, parts_in
from drivetrain.models.module_values import places_of
from drivetrain.models.rehearsal import rehearse
from drivetrain.optim.rules import Adam
from drivetrain.passes.loss_scale import DynamicLossScale
from drivetrain.program.averaging import WeightAverage
from drivetrain.program.capture import CapturedUpdates
from drivetrain.program.training_program import TrainingProgram
from drivetrain.run.compiling.compile_timer import MeasuringStoppedError, ProgramTimer, leaving_no_trace
from tests.pipeline.moving_models import LAYERS, WithState
from tests.program.harness import GivenFeed, make_program
from tests.run.shown_work import ShownWork


class Clock:
    """Every reading is later by the next of some seconds; the program's updates lie between two readings."""

    def __init__(self, seconds: Iterator[float]) -> None:
        self.now_s, self._seconds, self._is_begin = 0.0, seconds, False

    def __call__(self) -> float:
        self._is_begin = not self._is_begin
        if not self._is_begin:
            self.now_s += next(self._seconds)
        return self.now_s


@pytest.fixture
def updates() -> list[int]:
    return []


@pytest.fixture
def program(updates: list[int], monkeypatch: pytest.MonkeyPatch) -> TrainingProgram:
    feed = GivenFeed(torch.rand(4, 3), torch.tensor([0, 1, 0, 1]), micro=4)
    monkeypatch.setattr(TrainingProgram, "run_update", lambda self, update: updates.append(update))
    return make_program(nn.Linear(3, 2), feed, updates=10)


def timer(
    program: TrainingProgram,
    *seconds: float,
    first: int = 0,
    most: int = 10**6,
    reporter: Reporter | None = None,
) -> ProgramTimer:
    left = iter(range(most))
    return ProgramTimer(
        program,
        first=first,
        goes_on=lambda: next(left, None) is not None,
        reporter=reporter or Reporter(quiet=True),
        clock=Clock(iter(seconds)),
    )


def test_the_first_update_warms_up_and_the_median_of_the_others_counts(
    program: TrainingProgram, updates: list[int]
) -> None:
    times = timer(program, 9.0, *(2.0, 1.0, 5.0, 1.0, 2.0), *(30.0, 1.0, 1.0, 1.0, 1.0, 1.0), first=3)
    assert times.time_plain() == 2.0
    assert times.time_compiled() == (29.0, 1.0)
    assert updates == [3, 4, 5, 6, 7, 8, 9, 3, 4, 5, 6, 7]


def test_short_updates_are_timed_more_often(program: TrainingProgram, updates: list[int]) -> None:
    timer(program, *[0.1] * 100).time_plain()
    assert len(updates) == 11 + 1
    updates.clear()
    timer(program, *[0.001] * 100).time_plain()
    assert len(updates) == 51


def test_state_is_kept_only_where_something_is_measured_and_then_put_back(
    program: TrainingProgram, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = program.parameters.values.fill_(0.0)
    monkeypatch.setattr(TrainingProgram, "run_update", lambda self, update: self.parameters.values.add_(1.0))
    with timer(program, *[1.0] * 6):
        values.add_(1.0)
    assert bool((values == 1.0).all())
    with timer(program, *[1.0] * 6) as times:
        times.time_plain()
        assert bool((values == 7.0).all())
    assert bool((values == 1.0).all())


def test_a_stop_is_heard_between_two_updates(program: TrainingProgram, updates: list[int]) -> None:
    with pytest.raises(MeasuringStoppedError):
        timer(program, *[1.0] * 10, most=3).time_plain()
    assert len(updates) == 3


def test_what_was_captured_is_forgotten_and_warmed_up_again(
    program: TrainingProgram, updates: list[int]
) -> None:
    forgotten: list[int] = []

    class Capture:
        def forget(self) -> None:
            forgotten.append(len(updates))

    program.capture = cast(CapturedUpdates, Capture())
    times = timer(program, *[1.0] * 8, *[7.0] * 3, *[1.0] * 5)
    assert times.time_plain() == 1.0
    assert times.time_compiled() == (18.0, 1.0)
    assert forgotten == [0, 8]


def test_measuring_and_compiling_are_shown_and_end(program: TrainingProgram) -> None:
    shown = ShownWork()
    times = timer(program, *[1.0] * 12, reporter=shown)
    times.time_plain()
    times.time_compiled()
    timing = "timing uncompiled updates (--compile auto)"
    assert shown.names == [timing, timing, "compiling (--compile auto)", "timing compiled updates"]
    assert shown.ended == shown.names
    assert shown.counted["timing compiled updates"] == [1, 2, 3, 4, 5]


def full_program() -> TrainingProgram:
    """With everything that a program may keep from one update to the next."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(12, 2)
    )
    feed = GivenFeed(torch.rand(8, 1, 4, 4), torch.arange(8) % 2, micro=4)
    program = make_program(model, feed, rate=0.1)
    values = program.parameters.values
    program.mover.optimiser = Adam(values, beta1=0.9, beta2=0.999, epsilon=1e-8)
    program.mover.average = WeightAverage([values, *program.batch_norms.statistics], kept_share=0.9)
    program.mover.loss_scale = DynamicLossScale(values.device, updates_to_growth=2)
    program.batch_norms.can_undo = True
    model.eval()
    return program


def everything(program: TrainingProgram) -> dict[str, Tensor]:
    moved = program.mover
    assert moved.average is not None
    assert moved.loss_scale is not None
    tensors = {
        **program.model.state_dict(),
        **moved.optimiser.states,
        **moved.loss_scale.states,
        **{f"average {index}": average for index, average in enumerate(moved.average.averages)},
        **{f"record {name}": column for name, column in program.records.columns.items()},
    }
    return {name: tensor.clone() for name, tensor in tensors.items()}


def same(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=0, atol=0, equal_nan=True)


def run(program: TrainingProgram, updates: int = 3) -> None:
    program.model.train()
    for update in range(updates):
        program.run_update(update)


def draws() -> tuple[bytes, object, bytes]:
    host = np.random.get_state(legacy=False)
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), repr(host).encode()


def test_everything_is_as_it_was() -> None:
    program = full_program()
    before, drawn = everything(program), draws()
    with leaving_no_trace(program):
        run(program)
        torch.rand(1), random.random(), np.random.rand()
        changed, drawn_inside = everything(program), draws()
    after = everything(program)
    assert [name for name in before if same(before[name], changed[name])] == []
    assert [name for name in before if not same(before[name], after[name])] == []
    assert drawn == draws()
    assert all(one != other for one, other in zip(drawn, drawn_inside, strict=True))
    assert not program.model.training
    assert not program.batch_norms.layers[0].reported


def test_the_updates_after_it_are_those_of_a_fresh_program() -> None:
    program, fresh = full_program(), full_program()
    with leaving_no_trace(program):
        run(program)
    run(program)
    run(fresh)
    found, expected = everything(program), everything(fresh)
    assert all(same(found[name], expected[name]) for name in expected)


def test_it_is_put_back_after_an_error_too() -> None:
    program = full_program()
    before = everything(program)

    def break_off() -> None:
        with leaving_no_trace(program):
            run(program)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        break_off()
    assert all(same(before[name], found) for name, found in everything(program).items())


def program_with(layer: str) -> TrainingProgram:
    model = WithState(layer, channels=1)
    rehearse(model, image_shape=(1, 6, 6))
    give_own_memory(model)
    feed = GivenFeed(torch.rand(8, 1, 6, 6), torch.arange(8) % 2, micro=4)
    return make_program(model, feed, rate=0.1)


def values_of(program: TrainingProgram) -> list[object]:
    """What is bound, and its contents."""
    parts = [(place.name, part) for place in places_of(program.model) for part in parts_in(place.value)]
    return [
        (name, id(part), part.tolist() if isinstance(part, Tensor) else repr(part)) for name, part in parts
    ]


@pytest.mark.parametrize("layer", sorted(LAYERS.keys() - {"view"}))
def test_layers_with_state_forget_what_was_measured(layer: str) -> None:
    program = program_with(layer)
    before = values_of(program)
    with leaving_no_trace(program):
        run(program)
        assert values_of(program) != before
    assert values_of(program) == before
