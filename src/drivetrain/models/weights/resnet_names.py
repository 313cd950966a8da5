"""The names of our `resnet18` to `resnet152` in torchvision, which timm uses too, in both directions.

`conv2_block1_1_conv` here is `layer1.0.conv1` there. There are two differences: the batch norms here have an
epsilon of 1.001e-5 and there of 1e-5; `resnet18` and `resnet34` here have a convolution in their first
shortcut, unless they are built with `first_shortcut: false`.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.weights.translation import Translation
from drivetrain.models.zoo.resnet import BN_EPS, ResNet

__all__ = ["from_torchvision", "to_torchvision"]

_BLOCK_LAYER = re.compile(r"conv(\d)_block(\d+)_(\d)_(conv|bn)")
_CLASSIFIER = "predictions"
_OTHER_LAYERS = {"conv1_conv": "conv1", "conv1_bn": "bn1", _CLASSIFIER: "fc"}
_COUNTER = "num_batches_tracked"
_FIRST_SHORTCUT = "conv2_block1_0"


def _torchvision_name(name: str) -> str:
    layer, _, role = name.rpartition(".")
    return f"{_torchvision_layer(layer)}.{role}"


def _torchvision_layer(layer: str) -> str:
    found = _BLOCK_LAYER.fullmatch(layer)
    if found is None:
        return _OTHER_LAYERS.get(layer, layer)
    stack, block, position, kind = found.groups()
    inner = f"{kind}{position}" if position != "0" else f"downsample.{('conv', 'bn').index(kind)}"
    return f"layer{int(stack) - 1}.{int(block) - 1}.{inner}"


def _has_name_there(name: str) -> bool:
    layer = name.rpartition(".")[0]
    return layer in _OTHER_LAYERS or _BLOCK_LAYER.fullmatch(layer) is not None


def from_torchvision(model: nn.Module, tensors: Mapping[str, Tensor], *, given: str) -> Translation | None:
    """The tensors under our names; None if the model is none of our ResNets."""
    if not isinstance(model, ResNet):
        return None
    own_names = {_torchvision_name(name): name for name in model.state_dict()}
    renamed = {own_names.get(name, name): tensor for name, tensor in tensors.items()}
    identity = _identity_shortcut(model)
    if not identity or _missing(model, renamed) != identity.keys():
        return Translation(renamed)
    note = (
        f"{given} has no convolution in the first shortcut: {_FIRST_SHORTCUT}_conv starts as the identity, "
        f"although {_FIRST_SHORTCUT}_bn normalises in training; --model-params '{{first_shortcut: false}}' "
        "builds the model without both."
    )
    return Translation({**renamed, **identity}, (note,))


def _missing(model: nn.Module, tensors: Mapping[str, Tensor]) -> set[str]:
    """The tensors of a model that are not given, besides counters and those of the classifier."""
    names = model.state_dict().keys() - tensors.keys()
    return {name for name in names if not name.endswith(_COUNTER) and not name.startswith(_CLASSIFIER)}


def to_torchvision(model: ResNet) -> dict[str, Tensor]:
    """The tensors of one of our ResNets under torchvision's names; raises if its structure differs."""
    state = model.state_dict()
    identity = _identity_shortcut(model)
    if not all(torch.equal(state[name], value) for name, value in identity.items()):
        raise BadInputError(
            f"--names torchvision and timm have no place for {_FIRST_SHORTCUT}_conv, the trained convolution "
            "in the first shortcut; --names own works, and so does a training with --model-params "
            "'{first_shortcut: false}'."
        )
    kept = {name: state[name] for name in state if not identity or not name.startswith(_FIRST_SHORTCUT)}
    unknown = next((name for name in kept if not _has_name_there(name)), None)
    if unknown is not None:
        raise BadInputError(f"--names torchvision and timm have no name for {unknown}; --names own works.")
    return {_torchvision_name(name): value for name, value in kept.items()}


def _identity_shortcut(model: ResNet) -> dict[str, Tensor]:
    """What makes the first shortcut's convolution and batch norm compute their input; empty without them.

    A bottleneck's first shortcut widens its input, in torchvision too.
    """
    kernel = model.state_dict().get(f"{_FIRST_SHORTCUT}_conv.weight")
    if kernel is None or kernel.shape[0] != kernel.shape[1]:
        return {}
    width = kernel.shape[0]
    zeros, ones = torch.zeros(width), torch.ones(width)
    return {
        f"{_FIRST_SHORTCUT}_conv.weight": torch.eye(width).reshape(kernel.shape),
        f"{_FIRST_SHORTCUT}_bn.weight": ones,
        f"{_FIRST_SHORTCUT}_bn.bias": zeros,
        f"{_FIRST_SHORTCUT}_bn.running_mean": zeros,
        f"{_FIRST_SHORTCUT}_bn.running_var": ones - BN_EPS,
    }
