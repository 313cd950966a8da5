"""Networks of keras.applications without their top, with the weights of ours."""

import re
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from tests.keras_models import real_keras
from tests.models.zoo.photographs.checks import CHANNELS, undrawn


@torch.no_grad()
def check_features(name: str, keras_name: str, *, height: int, width: int) -> None:
    """Before the classifier, our network and the one of Keras compute the same of the same weights."""
    keras = real_keras()
    torch.manual_seed(1)
    ours = undrawn(name).eval()
    _make_telling(ours)
    theirs = getattr(keras.applications, keras_name)(
        include_top=False, weights=None, input_shape=(None, None, CHANNELS)
    )
    own_layers = {layer: module for layer, module in ours.named_children() if list(module.parameters())}
    last = list(own_layers)[-1]
    pairs = _pairs({layer: module for layer, module in own_layers.items() if layer != last}, theirs)
    for layer, values in pairs:
        layer.set_weights([value.numpy() for value in values])
    images = torch.randn(2, CHANNELS, height, width)
    found = _features(ours, images)
    expected = theirs(images.permute(0, 2, 3, 1).numpy(), training=False).cpu().permute(0, 3, 1, 2)
    assert _error(found, expected) < 1e-5
    # A check of the check: windows that lie one pixel further would be noticed.
    assert _error(_features(ours, images.roll(1, 2)), expected) > 0.01


def _make_telling(model: nn.Module) -> None:
    """Gives all layers values by which the features depend on the images, and on every layer."""
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            for value, low, high in _ranges(module):
                value.uniform_(low, high)
        elif isinstance(module, nn.Conv2d):
            module.weight.normal_(0, (2 / module.weight[0].numel()) ** 0.5)
            if module.bias is not None:
                module.bias.normal_(0, 0.1)


def _ranges(norm: nn.BatchNorm2d) -> Iterator[tuple[Tensor, float, float]]:
    """The tensors of a norm in the order of Keras, with ranges to draw them from; some have no scale."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    if norm.weight is not None:
        yield norm.weight, 0.5, 1.5
    yield norm.bias, -0.1, 0.1
    yield norm.running_mean, -0.1, 0.1
    yield norm.running_var, 0.5, 1.5


def _pairs(ours: dict[str, nn.Module], theirs: Any) -> Iterator[tuple[Any, list[Tensor]]]:
    """Every layer of Keras that has weights, with its weights: by name, and without one in their order."""
    layers = sorted((layer for layer in theirs.layers if layer.weights), key=_age)
    left = dict(ours)
    named = [layer for layer in layers if _taken(left, layer.name)]
    nameless = [layer for layer in layers if layer not in named]
    for layer in named:
        yield layer, [value for module in _named(ours, layer.name) for value in _values(module)]
    for kind in (nn.Conv2d, nn.BatchNorm2d):
        modules = [module for module in left.values() if isinstance(module, kind)]
        same_kind = [layer for layer in nameless if ("Conv2D" in type(layer).__name__) == (kind is nn.Conv2d)]
        for layer, module in zip(same_kind, modules, strict=True):
            yield layer, _values(module)


def _age(layer: Any) -> int:
    """The number that Keras adds to the names of layers that have none of their own."""
    number = re.search(r"_(\d+)$", layer.name)
    return int(number[1]) if number else 0


def _named(ours: dict[str, nn.Module], name: str) -> list[nn.Module]:
    """Our layers of a name; a separable convolution is two."""
    names = (name, f"{name}_depthwise", f"{name}_pointwise")
    return [ours[each] for each in names if each in ours]


def _taken(left: dict[str, nn.Module], name: str) -> bool:
    """Whether we have layers of a name; removes them from those that are left."""
    found = [left.pop(each, None) for each in (name, f"{name}_depthwise", f"{name}_pointwise")]
    return any(module is not None for module in found)


def _values(module: nn.Module) -> list[Tensor]:
    if isinstance(module, nn.BatchNorm2d):
        return [value for value, _, _ in _ranges(module)]
    assert isinstance(module, nn.Conv2d)
    axes = (2, 3, 0, 1) if module.groups > 1 else (2, 3, 1, 0)
    return [module.weight.permute(axes), *([] if module.bias is None else [module.bias])]


def _features(model: nn.Module, images: Tensor) -> Tensor:
    """What reaches the global pooling."""
    seen: list[Tensor] = []
    handle = model.get_submodule("avg_pool").register_forward_pre_hook(
        lambda _module, inputs: seen.append(inputs[0])
    )
    model(images)
    handle.remove()
    return seen[0]


def _error(found: Tensor, expected: Tensor) -> float:
    assert found.shape == expected.shape
    return float((found - expected).abs().max() / expected.abs().max())
