import pytest
import torch

from drivetrain.program.gradients import add_l2_, are_finite, clip_norm_


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
