"""The cut never changes the result; the worked cases of gradients and metrics."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from drivetrain.models.create import create_model
from drivetrain.program.gradient_rules import GradientRules, add_l2_, are_finite, clip_norm_
from drivetrain.verify.measure import Starts
from tests.program.harness import GivenFeed, SquaredError, always, make_program


def _line(weight: float) -> nn.Linear:
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, weight)
    return layer


@pytest.mark.parametrize("micro", [1, 2, 4], ids=["case 48", "cases 47 49", "case 46"])
def test_cases_46_to_50_the_mean_over_the_global_batch(micro: int) -> None:
    feed = GivenFeed(torch.ones(4, 1), torch.full((4,), 2.0), micro=micro)
    model = _line(1.0)
    make_program(model, feed, task=SquaredError()).run_update(0)
    assert model.weight.item() == 3.0


@pytest.mark.parametrize("micro", [4, 2, 1])
def test_cases_57_to_66_the_mean_loss_and_metric(micro: int) -> None:
    values = torch.arange(4.0)
    program = make_program(_line(0.0), GivenFeed(values.view(4, 1), values, micro=micro), task=SquaredError())
    program.run_update(0)
    assert program.records.read("loss", 0, 1)[0] == 3.5
    assert program.records.read("accuracy", 0, 1)[0] == 3.5


def test_case_55_losses_of_two_updates() -> None:
    model = _line(2.0)
    program = make_program(model, GivenFeed(torch.ones(1, 1), torch.ones(1), micro=1), task=SquaredError())
    program.run_update(0)
    program.batches.feed = GivenFeed(torch.ones(1, 1), torch.full((1,), 2.0), micro=1)
    program.run_update(1)
    losses = program.records.read("loss", 0, 2)
    assert losses.tolist() == [1.0, 4.0]
    assert losses.mean() == 2.5
    assert model.weight.item() == 4.0


@pytest.mark.parametrize("scale", [0.0, 10.0, 1024.0])
def test_case_54_loss_scaling_is_taken_out_again(scale: float) -> None:
    model = _line(1.0)
    feed = GivenFeed(torch.ones(4, 1), torch.full((4,), 2.0), micro=2)
    program = make_program(model, feed, task=SquaredError(), rules=GradientRules(loss_scaling=scale))
    program.run_update(0)
    assert model.weight.item() == pytest.approx(3.0, rel=1e-6)
    assert program.records.read("loss", 0, 1)[0] == 1.0


def test_padding_has_no_weight() -> None:
    images, labels = torch.tensor([[1.0], [5.0]]), torch.tensor([2.0, -7.0])
    padded, real = _line(1.0), _line(1.0)
    feed = GivenFeed(images, labels, micro=1, weights=torch.tensor([1.0, 0.0]))
    program = make_program(padded, feed, task=SquaredError())
    object.__setattr__(program.order, "remainder", "pad")
    object.__setattr__(program.order, "samples", 1)
    program.run_update(0)
    make_program(real, GivenFeed(images[:1], labels[:1], micro=1), task=SquaredError()).run_update(0)
    assert padded.weight.item() == real.weight.item()


def _images(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(16, 1, 12, 12, generator=generator, dtype=torch.float64).to(dtype)
    return images, torch.randint(0, 10, (16,), generator=generator)


def _gradients(micro: int, dtype: torch.dtype) -> dict[str, Tensor]:
    """Dropout included: its mask belongs to the sample, not to the micro-batch."""
    model = create_model("mnist_cnn", channels=1, image_size=12).to(dtype)
    program = make_program(model, GivenFeed(*_images(dtype), micro=micro), rate=0.0)
    program.model.train()
    program.run_update(0)
    flat = program.parameters
    return {name: view.clone() for name, view in flat.named_views(flat.gradients)}


def _agree(expected: dict[str, Tensor], actual: dict[str, Tensor], tolerance: float) -> bool:
    whole = torch.cat([gradient.flatten() for gradient in expected.values()]).norm()
    return all(
        (expected[name] - actual[name]).norm() <= tolerance * expected[name].norm() + tolerance / 100 * whole
        for name in expected
    )


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("micro", [8, 4, 1])
def test_accumulation_does_not_change_a_gradient(micro: int, dtype: torch.dtype, tolerance: float) -> None:
    whole, cut = _gradients(16, dtype), _gradients(micro, dtype)
    assert _agree(whole, cut, tolerance)
    wrong = {name: gradient * 1.001 for name, gradient in cut.items()}
    assert not _agree(whole, wrong, tolerance)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-10)])
def test_accumulation_changes_no_update_of_a_training(
    tmp_path: Path, dtype: torch.dtype, tolerance: float
) -> None:
    """Each of ten updates from equal states: two trainings would part by rounding alone."""
    losses, weights = [], []
    for micro in (16, 4):
        model = create_model("mnist_cnn", channels=1, image_size=12).to(dtype)
        program = make_program(model, GivenFeed(*_images(dtype), micro=micro), rate=0.05)
        program.model.train()
        starts = Starts(folder=str(tmp_path), leads=micro == 16)
        for update in range(10):
            starts.begin(program, update)
            program.run_update(update)
        losses.append(torch.from_numpy(program.records.read("loss", 0, 10)))
        weights.append(program.parameters.values.clone())
    assert (losses[0] - losses[1]).abs().max() <= tolerance
    assert (weights[0] - weights[1]).norm() <= tolerance * weights[0].norm()
    assert losses[0][-1] < losses[0][0]


def test_equal_micro_batches_give_equal_batch_norm_results() -> None:
    """Micro-batches of 4 are the normalised set: how often the loop around them stops does not matter."""
    states = []
    for pieces in ([(0, 6)], [(0, 1), (1, 4), (4, 6)]):
        model = create_model("cifar_resnet8", channels=1, image_size=12)
        program = make_program(model, GivenFeed(*_images(torch.float32), micro=4), rate=0.1)
        for first, last in pieces:
            program.execute(first, last, goes_on=always)
        states.append(model.state_dict())
    assert all(torch.equal(value, states[1][name]) for name, value in states[0].items())


def test_a_stop_is_honoured_at_the_next_update() -> None:
    program = make_program(
        _line(0.0), GivenFeed(torch.ones(2, 1), torch.ones(2), micro=2), task=SquaredError()
    )
    assert program.execute(0, 10, goes_on=lambda finished: finished < 3) == 3


class _Drawing(nn.Module):
    """A user's model that draws from torch's own generator."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(1, 1, bias=False)

    def forward(self, inputs: Tensor) -> Tensor:
        output: Tensor = self.line(inputs) * torch.rand(())
        return output


def test_models_that_draw_from_torch_repeat_exactly() -> None:
    losses = []
    for _ in range(2):
        torch.rand(7)
        model = _Drawing()
        nn.init.ones_(model.line.weight)
        program = make_program(
            model, GivenFeed(torch.ones(2, 1), torch.ones(2), micro=1), task=SquaredError()
        )
        program.execute(0, 3, goes_on=always)
        losses.append(program.records.read("loss", 0, 3).tolist())
    assert losses[0] == losses[1]


def test_clipping_shortens_only_what_is_too_long() -> None:
    long, short = torch.tensor([3.0, 4.0]), torch.tensor([0.3, 0.4])
    clip_norm_(long, longest=1.0)
    clip_norm_(short, longest=1.0)
    assert torch.allclose(long, torch.tensor([0.6, 0.8]), atol=1e-6)
    assert torch.equal(short, torch.tensor([0.3, 0.4]))


def test_l2_adds_the_weight_to_its_gradient() -> None:
    gradients = torch.tensor([1.0, 0.0])
    add_l2_(gradients, torch.tensor([2.0, -4.0]), factor=0.5)
    assert torch.equal(gradients, torch.tensor([2.0, -2.0]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_one_number_that_is_not_finite_is_found(dtype: torch.dtype) -> None:
    values = torch.full((1000,), -3e38 if dtype != torch.float64 else -1e308, dtype=dtype)
    assert are_finite(values)
    assert are_finite(values[:0])
    for number in (torch.nan, torch.inf, -torch.inf):
        spoilt = values.clone()
        spoilt[537] = number
        assert not are_finite(spoilt)
