"""Backward passes in two parts against whole ones, bit for bit."""

import copy
import gc
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from drivetrain.models.create import create_model
from drivetrain.models.zoo.layers import ConvRelu, UpConvRelu
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.pipeline.runtime.deferred_weights import WeightQueue, deferring


def _inputs(*shape: int, dtype: torch.dtype = torch.float32, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def _loss(outputs: Tensor) -> Tensor:
    return (outputs * _inputs(*outputs.shape, dtype=outputs.dtype, seed=9)).sum()


def _whole(model: nn.Module, inputs: Tensor) -> tuple[Tensor, Tensor | None]:
    """Two ordinary backward passes; the flat gradient and that of the inputs."""
    parameters = FlatParameters(model)
    for _ in range(2):
        _loss(model(inputs)).backward()  # type: ignore[no-untyped-call]
    return parameters.gradients, inputs.grad


def _in_two_parts(model: nn.Module, inputs: Tensor, *, deferred: int) -> tuple[Tensor, Tensor | None]:
    parameters = FlatParameters(model)
    queue = WeightQueue()
    for _ in range(2):
        with deferring(queue):
            outputs = model(inputs)
        assert len(queue) == 0
        _loss(outputs).backward()  # type: ignore[no-untyped-call]
        assert len(queue) == deferred
        queue.run()
        assert len(queue) == 0
    for name, parameter in model.named_parameters():
        gradient = parameter.grad
        assert gradient is not None, name
        assert gradient.untyped_storage().data_ptr() == parameters.gradients.data_ptr(), name
        assert gradient.grad_fn is None
    return parameters.gradients, inputs.grad


def _compare(model: nn.Module, inputs: Tensor, *, deferred: int = 1, input_gradient: bool = True) -> None:
    twin = copy.deepcopy(model)
    own = inputs.clone(memory_format=torch.preserve_format)
    expected = _whole(model, inputs.requires_grad_(input_gradient))
    found = _in_two_parts(twin, own.requires_grad_(input_gradient), deferred=deferred)
    assert expected[0].abs().sum() > 0
    assert torch.equal(expected[0], found[0])
    if input_gradient:
        assert expected[1] is not None
        assert found[1] is not None
        assert torch.equal(expected[1], found[1])


LAYERS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...], int]] = {
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1), (2, 4, 9), 1),
    "conv2d": (lambda: nn.Conv2d(4, 6, 3, stride=2, padding=(1, 0), dilation=2), (2, 4, 9, 8), 1),
    "groups": (lambda: nn.Conv2d(4, 8, 3, groups=2), (2, 4, 7, 7), 1),
    "depthwise": (lambda: nn.Conv2d(4, 4, 3, groups=4, padding=1), (2, 4, 7, 7), 1),
    "pointwise": (lambda: nn.Conv2d(16, 8, 1), (2, 16, 7, 7), 1),
    "no bias": (lambda: nn.Conv2d(4, 6, 3, bias=False), (2, 4, 7, 7), 1),
    "conv3d": (lambda: nn.Conv3d(2, 3, 3), (2, 2, 5, 5, 5), 1),
    "transposed 1d": (lambda: nn.ConvTranspose1d(4, 3, 2, stride=2), (2, 4, 5), 1),
    "transposed 2d": (
        lambda: nn.ConvTranspose2d(4, 6, 3, 2, padding=1, output_padding=1, groups=2, dilation=2),
        (2, 4, 5, 5),
        1,
    ),
    "transposed 3d": (lambda: nn.ConvTranspose3d(2, 3, 2, stride=2), (2, 2, 3, 3, 3), 1),
    "linear": (lambda: nn.Linear(20, 7), (5, 20), 1),
    "linear, 3 dimensions": (lambda: nn.Linear(20, 7), (5, 3, 20), 1),
    "linear, no bias": (lambda: nn.Linear(20, 7, bias=False), (5, 3, 20), 1),
    "circular": (lambda: nn.Conv2d(4, 6, 3, padding=1, padding_mode="circular"), (2, 4, 7, 7), 1),
    "convolution with ReLU": (lambda: ConvRelu(4, 6, 3), (2, 4, 7, 7), 1),
    "up-convolution with ReLU": (lambda: UpConvRelu(4, 6, kernel_size=3), (2, 4, 7, 7), 1),
    "padding by name": (lambda: nn.Conv2d(4, 6, 3, padding="same"), (2, 4, 7, 7), 0),
    "one image alone": (lambda: nn.Conv2d(4, 6, 3), (4, 7, 7), 0),
    "one vector alone": (lambda: nn.Linear(20, 7), (20,), 0),
    "batch norm": (lambda: nn.BatchNorm2d(4), (2, 4, 7, 7), 0),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", LAYERS)
def test_gradients_have_the_bits_of_a_whole_backward_pass(name: str, dtype: torch.dtype) -> None:
    make, shape, deferred = LAYERS[name]
    torch.manual_seed(0)
    _compare(make().to(dtype), _inputs(*shape, dtype=dtype), deferred=deferred)


def test_channels_last_stays_channels_last() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(ConvRelu(4, 8, 3), UpConvRelu(8, 4, kernel_size=2), nn.Conv2d(4, 2, 1))
    inputs = _inputs(2, 4, 9, 9).contiguous(memory_format=torch.channels_last)
    _compare(model.to(memory_format=torch.channels_last), inputs, deferred=3)  # type: ignore[call-overload]
    queue = WeightQueue()
    with deferring(queue):
        outputs = model(inputs.detach().requires_grad_())
    assert outputs.is_contiguous(memory_format=torch.channels_last)


def test_a_first_stage_puts_off_its_weights_although_nobody_wants_its_inputs_gradient() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))
    _compare(model, _inputs(2, 3, 8, 8), deferred=2, input_gradient=False)


class _Shared(nn.Module):
    """One convolution that runs three times, and a weight that is used by hand too."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = nn.Conv2d(4, 4, 3, padding=1)
        self.head = nn.Linear(4, 4)

    def forward(self, inputs: Tensor) -> Tensor:
        features = inputs
        for _ in range(3):
            features = self.convolution(features).tanh()
        outputs: Tensor = self.head(features.mean((2, 3)))
        return outputs


def test_a_shared_weight_is_added_to_once() -> None:
    torch.manual_seed(0)
    _compare(_Shared(), _inputs(2, 4, 6, 6), deferred=4)


class _Computed(nn.Module):
    """A weight that is no parameter, one that is frozen, and one that is also used by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.scaled = nn.utils.parametrizations.weight_norm(nn.Linear(6, 6))
        self.frozen = nn.Linear(6, 6)
        self.frozen.weight.requires_grad_(False)
        self.plain = nn.Linear(6, 6)

    def forward(self, inputs: Tensor) -> Tensor:
        features = self.frozen(self.scaled(inputs))
        outputs: Tensor = self.plain(features) + functional.linear(features, self.plain.weight * 2.0)
        return outputs


def test_what_is_not_known_has_its_whole_gradient_at_once() -> None:
    torch.manual_seed(0)
    model = _Computed().double()
    twin = copy.deepcopy(model)
    inputs = _inputs(3, 6, dtype=torch.float64)
    expected, _ = _whole(model, inputs)
    parameters, queue = FlatParameters(twin), WeightQueue()
    for _ in range(2):
        with deferring(queue):
            outputs = twin(inputs)
        _loss(outputs).backward()  # type: ignore[no-untyped-call]
        assert len(queue) == 1
        queue.run()
    # The plain weight's two parts are added one after the other here.
    assert torch.allclose(expected, parameters.gradients, rtol=1e-13, atol=1e-14)


@pytest.mark.parametrize("name", ["cifar_resnet8", "unet_same"])
def test_whole_models(name: str) -> None:
    torch.manual_seed(0)
    params = {"width": 4, "depth": 2} if name == "unet_same" else {}
    model = create_model(name, **params).train()
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    channels = next(p for p in model.parameters() if p.dim() == 4).shape[1]
    layers = sum(isinstance(module, nn.Conv2d | nn.ConvTranspose2d | nn.Linear) for module in model.modules())
    _compare(model, _inputs(2, channels, 32, 32), deferred=layers, input_gradient=False)


def test_autocast_computes_in_half_and_gives_gradients_in_full_precision() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(4, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 5 * 5, 3))
    twin = copy.deepcopy(model)
    inputs = _inputs(2, 4, 7, 7).requires_grad_()
    parameters, own = FlatParameters(model), FlatParameters(twin)
    queue = WeightQueue()
    with torch.autocast("cpu", torch.bfloat16, cache_enabled=False):
        expected = model(inputs)
        with deferring(queue):
            outputs = twin(inputs)
    assert outputs.dtype == expected.dtype == torch.bfloat16
    assert torch.equal(outputs, expected)
    (input_gradient,) = torch.autograd.grad(_loss(expected), inputs, retain_graph=True)
    _loss(expected).backward()  # type: ignore[no-untyped-call]
    inputs.grad = None
    _loss(outputs).backward()  # type: ignore[no-untyped-call]
    assert own.gradients.abs().sum() == 0
    queue.run()
    assert torch.equal(parameters.gradients, own.gradients)
    assert inputs.grad is not None
    assert torch.equal(inputs.grad, input_gradient)


def test_several_micro_batches_may_share_a_queue() -> None:
    torch.manual_seed(0)
    model = nn.Conv2d(3, 4, 3)
    twin = copy.deepcopy(model)
    parts = [_inputs(2, 3, 6, 6, seed=seed) for seed in range(3)]
    expected, own = FlatParameters(model), FlatParameters(twin)
    queue = WeightQueue()
    for part in parts:
        _loss(model(part)).backward()  # type: ignore[no-untyped-call]
        with deferring(queue):
            outputs = twin(part)
        _loss(outputs).backward()  # type: ignore[no-untyped-call]
    assert len(queue) == 3
    queue.run()
    queue.run()
    assert torch.equal(expected.gradients, own.gradients)


def test_nothing_is_put_off_where_no_gradient_is_taken() -> None:
    queue, model = WeightQueue(), nn.Conv2d(3, 4, 3)
    with torch.no_grad(), deferring(queue):
        outputs = model(_inputs(1, 3, 5, 5))
    assert not outputs.requires_grad
    assert torch.equal(outputs, model(_inputs(1, 3, 5, 5)))


def test_whoever_watches_a_gradient_is_told_when_it_is_complete() -> None:
    model = _Shared()
    FlatParameters(model)
    told: list[float] = []
    weight = model.convolution.weight
    weight.register_post_accumulate_grad_hook(lambda p: told.append(float(p.grad.abs().sum())))  # type: ignore[no-untyped-call]
    queue = WeightQueue()
    with deferring(queue):
        outputs = model(_inputs(2, 4, 6, 6))
    _loss(outputs).backward()  # type: ignore[no-untyped-call]
    assert told == []
    queue.run()
    assert weight.grad is not None
    assert told == [float(weight.grad.abs().sum())]


def test_the_graph_is_freed_by_the_backward_pass_and_the_rest_by_the_queue() -> None:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))
    FlatParameters(model)
    queue = WeightQueue()

    def graph_nodes() -> int:
        return sum(type(thing).__name__ == "_ConvolutionBackward" for thing in gc.get_objects())

    def step() -> int:
        with deferring(queue):
            outputs = model(_inputs(2, 3, 8, 8))
        _loss(outputs).backward()  # type: ignore[no-untyped-call]
        del outputs
        held = graph_nodes()
        queue.run()
        return held

    gc.collect()
    gc.disable()
    try:
        tensors = []
        for _ in range(4):
            assert step() == 0
            tensors.append(sum(issubclass(type(thing), Tensor) for thing in gc.get_objects()))
    finally:
        gc.enable()
    assert len(set(tensors)) == 1
