"""The first number that is not finite names its layer, its update and its samples."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import RunFailedError
from drivetrain.passes.loss_scale import DynamicLossScale
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from tests.pipeline.rank_programs import Job, build
from tests.program.harness import CPU
from tests.program.precise import FLOAT32, HALF, precise_program


class _Fragile(nn.Module):
    """Gives what it is given, until it is broken: then a number of some samples is another one."""

    def __init__(self) -> None:
        super().__init__()
        self.value: float | None = None
        self.rows: slice = slice(None)
        self.breaks_gradient = False

    def forward(self, inputs: Tensor) -> Tensor:
        if self.value is None:
            return inputs
        outputs = inputs.clone()
        if self.breaks_gradient:
            outputs.register_hook(lambda gradient: gradient * self.value)  # type: ignore[no-untyped-call]
        else:
            outputs[self.rows, 0] = self.value
        return outputs


def _program(*, micro: int = 4, **options: Any) -> tuple[TrainingProgram, _Fragile]:
    torch.manual_seed(0)
    fragile = _Fragile()
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True), fragile, nn.Linear(3, 2))
    options = {"precision": FLOAT32, "watched": True, "rate": 0.1, **options}
    return precise_program(model, torch.ones(2 * micro, 3), micro=micro, **options), fragile


def test_finite_numbers_pass() -> None:
    program, _ = _program()
    for update in range(3):
        program.run_update(update)
    expected, _ = _program(watched=False)
    for update in range(3):
        expected.run_update(update)
    assert torch.equal(program.parameters.values, expected.parameters.values)


def test_weights_that_overflow_as_they_move_are_named() -> None:
    program, _ = _program(rate=3e38)
    program.parameters.values.fill_(1e3)
    with pytest.raises(
        RunFailedError,
        match=r"^(0|3)\.(weight|bias) became inf in update 1, although its gradients were finite",
    ):
        program.run_update(0)


def test_statistics_that_overflow_are_named() -> None:
    program, _ = _program()
    program.model.register_buffer("running", torch.tensor([1.0, torch.nan]))
    with pytest.raises(
        RunFailedError, match=r"^running became nan in update 1, although its gradients were finite"
    ):
        program.run_update(0)


@pytest.mark.parametrize(("value", "word"), [(torch.inf, "inf"), (-torch.inf, "inf"), (torch.nan, "nan")])
def test_a_forward_pass_names_layer_update_and_samples(value: float, word: str) -> None:
    program, fragile = _program()
    program.run_update(0)
    fragile.value, fragile.rows = value, slice(1, 3)
    before = program.parameters.values.clone()
    with pytest.raises(
        RunFailedError,
        match=rf"^layer 2 returned {word} in the forward pass of update 2, samples 1, 2; "
        "the weights were not changed",
    ):
        program.run_update(1)
    assert torch.equal(program.parameters.values, before)


def test_many_samples_are_counted() -> None:
    program, fragile = _program(micro=16)
    fragile.value = torch.nan
    with pytest.raises(
        RunFailedError, match=r"samples 0, 1, 2, 3, 4, 5, 6, 7 and 8 more; the weights were not changed"
    ):
        program.run_update(0)


def test_a_backward_pass_names_what_gave_the_value() -> None:
    program, fragile = _program()
    fragile.value, fragile.breaks_gradient = torch.inf, True
    expected = r"the gradient of the output of layer 2 became inf in the backward pass of update 1, samples 0"
    with pytest.raises(RunFailedError, match=expected):
        program.run_update(0)


def test_the_gradient_of_a_weight_is_looked_at_too() -> None:
    program, _ = _program()
    parameter = program.model.get_parameter("0.weight")
    parameter.register_hook(lambda gradient: gradient * torch.nan)  # type: ignore[no-untyped-call]
    with pytest.raises(RunFailedError, match=r"the gradient of 0.weight became nan in the backward pass of"):
        program.run_update(0)


def test_a_dynamic_loss_scale_may_overflow_gradients_but_not_outputs() -> None:
    scale = DynamicLossScale(CPU)
    program, fragile = _program(scale=scale, precision=HALF)
    fragile.value, fragile.breaks_gradient = torch.inf, True
    program.run_update(0)
    assert scale.skips
    fragile.breaks_gradient = False
    with pytest.raises(RunFailedError, match="layer 2 returned inf"):
        program.run_update(1)


def test_validation_is_not_watched() -> None:
    program, fragile = _program()
    fragile.value = torch.nan
    program.model.eval()
    assert program.model(torch.ones(2, 3)).isnan().any()


def test_an_accelerator_is_asked_once_and_tells_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in: the watch of a CPU that keeps its flags as it would on an accelerator."""
    program, fragile = _program()
    watch = program.float_watch
    assert watch is not None
    monkeypatch.setattr(watch, "_at_once", False)
    program.run_update(0)
    fragile.value, fragile.rows = torch.inf, slice(3, 4)
    with pytest.raises(
        RunFailedError,
        match=r"^layer 2 returned inf in the forward pass of update 2, sample 3; "
        "the weights were not changed",
    ):
        program.run_update(1)


def _broken(group: ReplicaGroup, options: dict[str, Any]) -> str | None:
    job = Job(kind="cifar_resnet8", options={**options, "fp_exceptions": True}, dtype=torch.float32)
    program = build(group, job).program
    program.model.train()
    name = "conv2_block1_layer1_conv"
    with torch.no_grad():
        program.model.get_parameter(f"{name}.weight").fill_(torch.inf)
    if program.stages is not None and f"{name}.weight" not in program.stages.parameter_names:
        return None
    try:
        program.run_update(0)
    except RunFailedError as error:
        return str(error)
    return None


@pytest.mark.parametrize("cut", [{"replicas": 2}, {"stages": 2}], ids=str)
def test_every_rank_watches_its_own(rank_pool: RankPool, cut: dict[str, int]) -> None:
    names = [name for name in rank_pool.run(_broken, cut, ranks=2) if name is not None]
    assert len(names) == (2 if "replicas" in cut else 1)
    for name in names:
        assert name.startswith("layer conv2_block1_layer1_conv returned ")
        assert "in the forward pass of update 1, samples" in name
