"""The worked cases of precision: types, tiny products, lost and kept updates."""

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import RunFailedError
from tests.program.precise import FLOAT32, HALF, MIXED, PRECISIONS, Weight, precise_program


@pytest.mark.parametrize(
    ("name", "output", "weights"),
    [
        ("32.32", torch.float32, torch.float32),
        ("16.32", torch.float16, torch.float32),
        ("16.16", torch.float16, torch.float16),
    ],
)
def test_case_75_types_of_output_weights_and_gradients(
    name: str, output: torch.dtype, weights: torch.dtype
) -> None:
    model = Weight(2.0)
    program = precise_program(model, torch.full((4, 1), 0.5), precision=PRECISIONS[name], micro=2)
    program.run_update(0)
    assert model.seen == [output, output]
    assert model.weight.dtype == weights
    assert model.weight.grad is not None
    assert model.weight.grad.dtype == weights
    assert program.parameters.values.dtype == program.parameters.gradients.dtype == weights
    assert program.records.columns["loss"].dtype == torch.float64
    assert program.precision.description == f"{name} ({str(output).removeprefix('torch.')})"


@pytest.mark.parametrize(("name", "is_equal"), [("32.32", True), ("16.32", False), ("16.16", False)])
def test_case_76_a_tiny_product(name: str, is_equal: bool) -> None:
    program = precise_program(Weight(1e-7), torch.full((1, 1), 0.1), precision=PRECISIONS[name])
    with torch.no_grad():
        found = program.passes.step.forward(torch.full((1, 1), 0.1)).item()  # type: ignore[attr-defined]
    assert (round(found, 10) == 1e-8) is is_equal


@pytest.mark.parametrize(("name", "moves"), [("32.32", True), ("16.32", True), ("16.16", False)])
def test_case_77_a_small_step_of_a_large_weight(name: str, moves: bool) -> None:
    model = Weight(1000.0)
    precise_program(model, torch.full((1, 1), 0.1), precision=PRECISIONS[name], rate=1.0).run_update(0)
    assert (model.weight.item() != 1000.0) is moves


@pytest.mark.parametrize("rounds", [False, True])
def test_case_78_many_small_steps_are_kept_by_stochastic_rounding(rounds: bool) -> None:
    # Each moves with a chance of 0.4: a step is 0.002 of the distance to the next number.
    model = Weight(1000.0, count=64)
    recipe = {"stochastic_rounding": rounds, "precision": "16.16", "seed": 42}
    images = torch.full((1, 1), 0.1)
    program = precise_program(model, images, precision=HALF, rate=0.01, recipe=recipe)
    for update in range(250):
        program.run_update(update)
    assert bool((model.weight != 1000.0).any()) is rounds


def test_losses_and_metrics_are_wide_in_any_precision() -> None:
    for precision in PRECISIONS.values():
        program = precise_program(Weight(1.0), torch.full((3, 1), 1.0), precision=precision)
        loss, score = program.passes.run(0)
        assert loss.dtype == score.dtype == torch.float32


class _Divided(nn.Module):
    """The weight divided by the image."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(value))

    def forward(self, images: Tensor) -> Tensor:
        return (self.weight / images.to(self.weight.dtype)).view(-1, 1)


class _Multiplied(_Divided):
    def forward(self, images: Tensor) -> Tensor:
        return (self.weight * images.to(self.weight.dtype)).view(-1, 1)


@pytest.mark.parametrize(("value", "divisor", "result"), [(8.0, 2.0, 4.0), (1.0, 1.0, 1.0)])
def test_case_79_ordinary_divisions_pass(value: float, divisor: float, result: float) -> None:
    program = precise_program(_Divided(value), torch.full((1, 1), divisor), precision=HALF, watched=True)
    program.run_update(0)
    assert program.records.read("loss", 0, 1)[0] == result


@pytest.mark.parametrize("model", [_Divided(8.0), _Multiplied(65504.0)])
def test_case_79_division_by_zero_and_overflow_raise_in_float16(model: _Divided) -> None:
    image = 0.0 if type(model) is _Divided else 10.0
    program = precise_program(model, torch.full((1, 1), image), precision=HALF, watched=True)
    before = model.weight.item()
    with pytest.raises(
        RunFailedError, match=r"the model returned inf in the forward pass of update 1, sample 0"
    ):
        program.run_update(0)
    assert model.weight.item() == before


def test_case_79_without_exceptions_a_division_by_zero_is_infinite() -> None:
    program = precise_program(_Divided(8.0), torch.zeros(1, 1), precision=FLOAT32)
    program.run_update(0)
    assert program.records.read("loss", 0, 1)[0] == torch.inf


def test_half_weights_learn_what_wide_ones_learn() -> None:
    found = []
    for precision in (MIXED, HALF):
        model = Weight(4.0)
        program = precise_program(model, torch.full((8, 1), 0.25), precision=precision, micro=2, rate=0.5)
        for update in range(4):
            program.run_update(update)
        found.append(model.weight.item())
    assert found == [3.5, 3.5]
