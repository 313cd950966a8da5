"""Updates that leave no trace."""

import random

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from drivetrain.optim.adam import Adam
from drivetrain.passes.loss_scale import DynamicLossScale
from drivetrain.program.averaging import WeightAverage
from drivetrain.program.training import TrainingProgram
from drivetrain.run.compiling.no_trace import leaving_no_trace
from tests.program.harness import GivenFeed, make_program


def full_program() -> TrainingProgram:
    """With everything that a program may keep from one update to the next."""
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.BatchNorm2d(3), nn.Dropout(0.5), nn.Flatten(), nn.Linear(12, 2)
    )
    feed = GivenFeed(torch.rand(8, 1, 4, 4), torch.arange(8) % 2, micro=4)
    program = make_program(model, feed, rate=0.1)
    values = program.parameters.values
    program.optimiser = Adam(values, beta1=0.9, beta2=0.999, epsilon=1e-8)
    program.average = WeightAverage([values, *program.batch_norms.statistics], kept_share=0.9)
    program.loss_scale = DynamicLossScale(values.device, updates_to_growth=2)
    program.batch_norms.can_undo = True
    model.eval()
    return program


def everything(program: TrainingProgram) -> dict[str, Tensor]:
    assert program.average is not None
    assert program.loss_scale is not None
    tensors = {
        **program.model.state_dict(),
        **program.optimiser.states,
        **program.loss_scale.states,
        **{f"average {index}": average for index, average in enumerate(program.average.averages)},
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
