"""Batch norms of a trained model taken into the convolutions before them, for inference."""

import copy
from collections import Counter
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.fx import Node

from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.models.zoo.layers import Conv2dSame
from drivetrain.passes.forward import Precision, in_precision
from drivetrain.pipeline.graph.trace import TracedModel, trace_model

__all__ = [
    "FoldedModel",
    "find_followers",
    "find_pairs",
    "fold_batch_norm",
    "fold_where_same",
    "is_untouched",
]

# A kind of its own may do more than convolve, a ReLU for instance, and is left alone.
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, Conv2dSame)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_TOLERANCES = {torch.float32: 1e-3}
_HALF_TOLERANCE = 5e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedModel:
    """A copy in evaluation mode, and the names of the batch norms that are gone from it."""

    model: nn.Module
    folded: tuple[str, ...]


def fold_batch_norm(model: nn.Module) -> FoldedModel:
    """A copy without the batch norms that directly follow a convolution whose output nobody else reads.

    The model itself stays as it is; one that cannot be traced is copied unchanged.
    """
    pairs = find_pairs(model)
    folded = copy.deepcopy(model).eval()
    for convolution_name, norm_name in pairs:
        convolution, norm = folded.get_submodule(convolution_name), folded.get_submodule(norm_name)
        assert isinstance(convolution, nn.Conv1d | nn.Conv2d | nn.Conv3d)
        assert isinstance(norm, _NORMS)
        _fold_into(convolution, norm)
        parent, _, own_name = norm_name.rpartition(".")
        setattr(folded.get_submodule(parent), own_name, nn.Identity())
    return FoldedModel(model=folded, folded=tuple(norm for _, norm in pairs))


def find_pairs(model: nn.Module) -> list[tuple[str, str]]:
    """The convolutions and the batch norms to take into them, by name."""
    pairs = find_followers(model, before=_CONVOLUTIONS, after=_NORMS)
    return [pair for pair in pairs if _has_statistics(model.get_submodule(pair[1]))]


def find_followers(
    model: nn.Module, *, before: tuple[type[nn.Module], ...], after: tuple[type[nn.Module], ...]
) -> list[tuple[str, str]]:
    """Layers of some kinds with the one directly behind, by name; nobody else reads what is between them.

    Both run once and are themselves and their parameters nowhere else in the model; kinds derived from those
    asked for do not count, nor do layers with hooks. A model that cannot be traced has none.
    """
    try:
        traced = trace_model(model)
    except BadInputError:
        return []
    calls = Counter(layer.module_path for layer in traced.layers if layer.module_path is not None)
    shared = _shared_modules(model)
    pairs = []
    for layer in traced.layers:
        pair = _pair_at(traced, layer.node, before=before, after=after)
        if pair is None or not all(calls[name] == 1 and name not in shared for name in pair):
            continue
        if all(is_untouched(model.get_submodule(name)) for name in pair):
            pairs.append(pair)
    return pairs


def is_untouched(layer: nn.Module) -> bool:
    """Whether it runs the forward of its kind, and nobody looks on."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks)
    return "forward" not in vars(layer) and not any(hooks)


def _pair_at(
    traced: TracedModel,
    node: Node,
    *,
    before: tuple[type[nn.Module], ...],
    after: tuple[type[nn.Module], ...],
) -> tuple[str, str] | None:
    if type(traced.module_of(node)) not in after or len(node.all_input_nodes) != 1:
        return None
    earlier = _before_identities(traced, node.all_input_nodes[0])
    if type(traced.module_of(earlier)) not in before or len(earlier.users) != 1:
        return None
    return str(earlier.target), str(node.target)


def _before_identities(traced: TracedModel, node: Node) -> Node:
    """What a value is without layers that do nothing, such as batch norms that are gone."""
    while type(traced.module_of(node)) is nn.Identity and len(node.users) == 1:
        node = node.all_input_nodes[0]
    return node


def _has_statistics(norm: nn.Module) -> bool:
    return isinstance(norm, nn.modules.batchnorm._BatchNorm) and norm.running_mean is not None


def _shared_modules(model: nn.Module) -> set[str]:
    """Names of modules, or owners of parameters, that the model has under several names."""
    modules = [*model.named_modules(remove_duplicate=False)]
    by_module = Counter(id(module) for _, module in modules)
    by_parameter = Counter(
        id(parameter)
        for _, module in model.named_modules()
        for _, parameter in module.named_parameters(recurse=False, remove_duplicate=False)
    )
    return {
        name
        for name, module in modules
        if by_module[id(module)] > 1
        or any(by_parameter[id(parameter)] > 1 for parameter in module.parameters(recurse=False))
    }


@torch.no_grad()
def _fold_into(
    convolution: nn.Conv1d | nn.Conv2d | nn.Conv3d, norm: nn.BatchNorm1d | nn.BatchNorm2d | nn.BatchNorm3d
) -> None:
    """norm(W x + b) = (s W) x + s (b - mean) + shift, worked out in float64."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    mean, variance = norm.running_mean.double(), norm.running_var.double()
    scale = (variance + norm.eps).rsqrt()
    if norm.weight is not None:
        scale = scale * norm.weight.double()
    bias = torch.zeros_like(mean) if convolution.bias is None else convolution.bias.double()
    shifted = (bias - mean) * scale
    if norm.bias is not None:
        shifted = shifted + norm.bias.double()
    weight = convolution.weight
    per_channel = scale.view(-1, *(1 for _ in weight.shape[1:]))
    convolution.weight = _like(weight, weight.double() * per_channel)
    convolution.bias = _like(weight, shifted)


def _like(model_weight: Tensor, values: Tensor) -> nn.Parameter:
    return nn.Parameter(values.to(model_weight.dtype), requires_grad=model_weight.requires_grad)


# Batch norms folded where the model then still computes the same: a model of one's own may surprise.


def fold_where_same(
    model: nn.Module, images: Tensor, *, precision: Precision, is_known: bool
) -> tuple[nn.Module, str | None]:
    """The model without its batch norms, or as it is and why; one that is known is not tried out."""
    try:
        folded = fold_batch_norm(model)
        if not folded.folded:
            return model, None
        if is_known or _agree(model, folded.model, images, precision=precision):
            return folded.model, None
        why = "its output would change"
    except Exception as error:
        why = describe_failure(error)
    return model, f"the model runs with its batch norms, as they cannot be folded: {why}"


@torch.inference_mode()
def _agree(model: nn.Module, folded: nn.Module, images: Tensor, *, precision: Precision) -> bool:
    expected, found = (in_precision(one, precision)(images.clone()).float() for one in (model, folded))
    tolerance = _TOLERANCES.get(precision.compute_dtype, _HALF_TOLERANCE)
    largest = float(expected.abs().max())
    return torch.allclose(found, expected, rtol=0, atol=tolerance * largest, equal_nan=True)
