"""Folds the batch norms of a trained model into the convolutions before them, for inference."""

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

# Exactly these types: a subclass may do more than convolve, for example apply a ReLU, and is left alone.
_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d, Conv2dSame)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
# The largest change of the output by folding, relative to its largest value. A correct fold changes only the
# rounding, which adds up over the layers of a deep network.
_TOLERANCES = {torch.float32: 1e-3}
_HALF_TOLERANCE = 5e-2


@dataclass(frozen=True, slots=True, kw_only=True)
class FoldedModel:
    """A copy in evaluation mode, and the names of the batch norms that were folded."""

    model: nn.Module
    folded: tuple[str, ...]


def fold_batch_norm(model: nn.Module) -> FoldedModel:
    """A copy in which batch norms directly after a convolution are folded into it.

    The convolution's output must have no other reader. The model itself is not changed. A model that cannot
    be traced is copied without folding.
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
    """The names of the convolutions and of the batch norms to fold into them."""
    pairs = find_followers(model, before=_CONVOLUTIONS, after=_NORMS)
    return [pair for pair in pairs if _has_statistics(model.get_submodule(pair[1]))]


def find_followers(
    model: nn.Module, *, before: tuple[type[nn.Module], ...], after: tuple[type[nn.Module], ...]
) -> list[tuple[str, str]]:
    """Names of pairs of layers of the given types, where only the second reads the output of the first.

    Both run once and share no module or parameter with other places of the model. Subclasses of the types and
    layers with hooks do not count. A model that cannot be traced has no pairs.
    """
    try:
        traced = trace_model(model).in_evaluation
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
    """Whether a layer runs the forward of its class and has no forward hooks."""
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
    """Skips identity layers backwards, such as the places of folded batch norms."""
    while type(traced.module_of(node)) is nn.Identity and len(node.users) == 1:
        node = node.all_input_nodes[0]
    return node


def _has_statistics(norm: nn.Module) -> bool:
    return isinstance(norm, nn.modules.batchnorm._BatchNorm) and norm.running_mean is not None


def _shared_modules(model: nn.Module) -> set[str]:
    """Names of modules that appear under several names, or that own such a parameter."""
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
    """Folds by norm(W x + b) = (s W) x + s (b - mean) + shift, computed in float64."""
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


def fold_where_same(
    model: nn.Module, images: Tensor, *, precision: Precision, is_known: bool
) -> tuple[nn.Module, str | None]:
    """The model with folded batch norms, or the model unchanged and the reason.

    The output of a user's model is compared before and after; a model of this package (`is_known`) is not.
    """
    try:
        folded = fold_batch_norm(model)
        if not folded.folded:
            return model, None
        if is_known or _agree(model, folded.model, images, precision=precision):
            return folded.model, None
        why = "the output would change"
    except Exception as error:
        why = describe_failure(error)
    return model, f"batch norms are not folded into the convolutions: {why}"


@torch.inference_mode()
def _agree(model: nn.Module, folded: nn.Module, images: Tensor, *, precision: Precision) -> bool:
    expected, found = (in_precision(one, precision)(images.clone()).float() for one in (model, folded))
    tolerance = _TOLERANCES.get(precision.compute_dtype, _HALF_TOLERANCE)
    largest = float(expected.abs().max())
    return torch.allclose(found, expected, rtol=0, atol=tolerance * largest, equal_nan=True)
