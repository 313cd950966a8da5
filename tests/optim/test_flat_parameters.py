import pytest
import torch
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.optim.flat_parameters import FlatParameters


def _model() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 5, 3), nn.ReLU(), nn.Flatten(), nn.Linear(20, 2))


def test_parameters_keep_their_values_and_names() -> None:
    plain, flat = _model(), _model()
    FlatParameters(flat)
    for (name, expected), (other, actual) in zip(
        plain.named_parameters(), flat.named_parameters(), strict=True
    ):
        assert name == other
        assert torch.equal(expected, actual)


def test_gradients_arrive_in_the_flat_vector() -> None:
    plain, model = _model(), _model()
    flat = FlatParameters(model)
    images = torch.randn(2, 3, 4, 4)
    plain(images).square().sum().backward()
    for _ in range(2):
        flat.gradients.zero_()
        model(images).square().sum().backward()
    gradients = dict(flat.named_views(flat.gradients))
    for name, parameter in plain.named_parameters():
        assert parameter.grad is not None
        assert torch.allclose(gradients[name], parameter.grad, rtol=1e-5, atol=1e-6)
    padding = flat.gradients.numel() - sum(segment.numel for segment in flat.segments)
    assert padding > 0
    assert int((flat.gradients != 0).sum()) <= sum(segment.numel for segment in flat.segments)


def test_a_change_of_the_vector_changes_the_model() -> None:
    model = _model()
    flat = FlatParameters(model)
    flat.values.zero_()
    assert all(not parameter.any() for parameter in model.parameters())


def test_convolution_weights_are_channels_last() -> None:
    model = _model()
    FlatParameters(model)
    convolution = model[0]
    assert isinstance(convolution, nn.Conv2d)
    assert convolution.weight.is_contiguous(memory_format=torch.channels_last)


def test_frozen_parameters_stay_out() -> None:
    model = _model()
    model[0].requires_grad_(False)
    assert [segment.name for segment in FlatParameters(model).segments] == ["3.weight", "3.bias"]


def test_nothing_to_train_and_mixed_types_are_refused() -> None:
    with pytest.raises(BadInputError, match="nothing to train"):
        FlatParameters(nn.Sequential(nn.ReLU()))
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    with pytest.raises(BadInputError, match="float32"):
        FlatParameters(mixed)


def _doubled(parameter: torch.Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad = parameter.grad * 2


def _tripled(gradient: torch.Tensor) -> torch.Tensor:
    return gradient * 3


def _dropped(parameter: torch.Tensor) -> None:
    parameter.grad = None


def test_a_hook_may_replace_the_gradient() -> None:
    plain, model = _model(), _model()
    model.get_parameter("3.weight").register_hook(_tripled)  # type: ignore[no-untyped-call]
    model.get_parameter("0.weight").register_post_accumulate_grad_hook(_doubled)  # type: ignore[no-untyped-call]
    model.get_parameter("0.bias").register_post_accumulate_grad_hook(_dropped)  # type: ignore[no-untyped-call]
    flat, free = FlatParameters(model), FlatParameters(plain)
    images = torch.randn(2, 3, 4, 4)
    plain(images).square().sum().backward()
    model(images).square().sum().backward()
    gradients, expected = (dict(one.named_views(one.gradients)) for one in (flat, free))
    assert torch.equal(gradients["0.weight"], expected["0.weight"] * 2)
    assert torch.equal(gradients["3.weight"], expected["3.weight"] * 3)
    assert not gradients["0.bias"].any()
    for parameter, place in zip(flat.owners, flat.gradient_places, strict=True):
        assert parameter.grad is place
