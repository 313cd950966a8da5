"""Applies `--precision-list`: layers that are not on the list of 16-bit layers run in float32.

The forward method of each layer is wrapped; the wrapper acts only under autocast. A float32 layer switches
autocast off and casts its inputs to float32, a 16-bit layer casts them to 16 bits. A module whose layers all
run in float32 does so as a whole, including the operations between its layers.
"""

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules import activation, pooling
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd
from torch.nn.modules.dropout import _DropoutNd
from torch.utils._pytree import tree_leaves, tree_map

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import nearest_name
from drivetrain.layers.draws.dropout import CounterDropout
from drivetrain.layers.reporting_batch_norm import ReportingBatchNorm
from drivetrain.models.freeze import FrozenBatchNorm
from drivetrain.models.half_weights import widened
from drivetrain.models.modules import is_inside
from drivetrain.recipe.params import PrecisionList
from drivetrain.recipe.precision_file import LAYER_KINDS

__all__ = ["install_precision_list", "layer_kind"]

_NORMS = (_NormBase, nn.LayerNorm, nn.GroupNorm, nn.RMSNorm, nn.LocalResponseNorm)
_TYPES: dict[str, tuple[type[nn.Module], ...]] = {
    "conv": (_ConvNd,),
    "linear": (nn.Linear, nn.Bilinear),
    "norm": (*_NORMS, ReportingBatchNorm, FrozenBatchNorm),
    "upsample": (nn.Upsample, nn.PixelShuffle),
    "dropout": (_DropoutNd, CounterDropout),
}
_FILES = {pooling.__name__: "pool", activation.__name__: "activation"}


def layer_kind(layer: nn.Module) -> str:
    """The kind of a layer as precision lists name it, such as conv or norm."""
    for kind, types in _TYPES.items():
        if isinstance(layer, types):
            return kind
    files = (_FILES.get(base.__module__) for base in type(layer).__mro__)
    return next((kind for kind in files if kind is not None), "other")


def install_precision_list(model: nn.Module, lists: PrecisionList) -> None:
    """Sets the precision of every layer of the model from the lists.

    Layers are the modules without children, and norms, which may have an activation inside.
    """
    layers = {name: module for name, module in model.named_modules() if name and _is_layer(module)}
    half = _chosen(model, layers, lists.half) - _chosen(model, layers, lists.float32)
    if not half:
        raise BadInputError(
            f"--precision-list leaves no layer of the model in 16 bits; use --precision 32.32, or choose "
            f"layers, for example half: [{_kinds_here(layers)}]."
        )
    for name, module in model.named_modules():
        if name in layers:
            _replace_forward(module, _in_half if name in half else _in_float32)
        elif name and not any(layer.startswith(f"{name}.") for layer in half):
            _replace_forward(module, _in_float32)


def _is_layer(module: nn.Module) -> bool:
    return next(module.children(), None) is None or isinstance(module, _TYPES["norm"])


def _chosen(model: nn.Module, layers: dict[str, nn.Module], entries: Sequence[str]) -> set[str]:
    """The layers that entries match; an entry without a match is refused with a suggestion."""
    chosen: set[str] = set()
    for entry in entries:
        if entry in LAYER_KINDS:
            chosen |= {name for name, layer in layers.items() if layer_kind(layer) == entry}
            continue
        matched = {name for name in layers if is_inside(name, entry)}
        if not matched:
            raise BadInputError(_unmatched(model, entry))
        chosen |= matched
    return chosen


def _unmatched(model: nn.Module, entry: str) -> str:
    names = [name for name, _ in model.named_modules() if name]
    nearest = nearest_name(entry.strip("*"), [*LAYER_KINDS, *names]) or LAYER_KINDS[0]
    return (
        f"--precision-list: {entry} is not a kind of layer ({', '.join(LAYER_KINDS)}) and matches no layer "
        f"of the model; {nearest} works."
    )


def _kinds_here(layers: dict[str, nn.Module]) -> str:
    there = {layer_kind(layer) for layer in layers.values()}
    return ", ".join(kind for kind in LAYER_KINDS if kind in there)


def _replace_forward(module: nn.Module, forward: Callable[..., Any]) -> None:
    # A bound method: deepcopy binds it to the copy, while a closure would keep calling this module.
    module.forward = MethodType(forward, module)


def _in_float32(layer: nn.Module, *inputs: Any, **named: Any) -> Any:
    kind = _half_device(inputs, named)
    if kind is None:
        return type(layer).forward(layer, *inputs, **named)
    inputs, named = tree_map(_wide, (inputs, named))
    with torch.autocast(kind, enabled=False):
        return type(layer).forward(layer, *inputs, **named)


def _in_half(layer: nn.Module, *inputs: Any, **named: Any) -> Any:
    kind = _half_device(inputs, named)
    if kind is not None:
        dtype = torch.get_autocast_dtype(kind)
        inputs, named = tree_map(lambda value: _narrow(value, dtype), (inputs, named))
    return type(layer).forward(layer, *inputs, **named)


def _half_device(inputs: tuple[Any, ...], named: dict[str, Any]) -> str | None:
    """The device type if autocast is on for it, otherwise None."""
    kinds = (value.device.type for value in tree_leaves((inputs, named)) if isinstance(value, Tensor))
    kind = next(kinds, None)
    return kind if kind is not None and torch.is_autocast_enabled(kind) else None


def _wide(value: Any) -> Any:
    return widened(value) if isinstance(value, Tensor) else value


def _narrow(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.dtype == torch.float32 else value
