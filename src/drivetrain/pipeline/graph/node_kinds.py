"""Classifies the steps of a traced model: reads of sizes or types, in-place changes, views of inputs."""

import builtins
import inspect
import math
import operator
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from torch import fx, nn
from torch.fx import Node

from drivetrain.core.wording import words
from drivetrain.models.modules import hooks_of
from drivetrain.models.zoo.layers import Add, CentralCrop, Concatenate, GlobalMean, Shortcut

__all__ = [
    "IN_PLACE_OPERATORS",
    "TENSOR_ATTRIBUTES",
    "find_reads",
    "gives_several",
    "inputs_kept_alive",
    "is_own",
    "may_change_inputs",
    "may_give_several",
    "mutated_input",
    "name_of_call",
]


_READ_METHODS = words(
    "size dim ndimension numel nelement stride element_size get_device is_contiguous is_floating_point"
)
TENSOR_ATTRIBUTES = words("T mT H mH data real imag grad")
_PLAIN_MODULES = ("_operator", "operator", builtins.__name__, math.__name__)
# Functions and methods that may return their input or a view of it (`contiguous`, `to` and `dropout` do so
# only sometimes). The results of all other torch functions are taken to have memory of their own.
_VIEWS = words(
    "getitem getattr view view_as reshape reshape_as flatten unflatten squeeze unsqueeze transpose permute t "
    "expand expand_as narrow select chunk split tensor_split unbind contiguous to type type_as float half "
    "double bfloat16 detach movedim moveaxis swapaxes swapdims unfold diagonal dropout dropout1d dropout2d "
    "dropout3d alpha_dropout feature_dropout feature_alpha_dropout atleast_2d atleast_3d broadcast_to "
    "pixel_shuffle channel_shuffle adaptive_avg_pool2d real imag cpu cuda"
)
_VIEW_MODULES = (
    nn.Identity,
    nn.Flatten,
    nn.Unflatten,
    nn.modules.dropout._DropoutNd,
    nn.PixelShuffle,
    nn.PixelUnshuffle,
    nn.ChannelShuffle,
)
# Modules of drivetrain whose results never share memory with their inputs.
_FRESH_MODULES = (Add, CentralCrop, Concatenate, GlobalMean, Shortcut)
_SEVERAL = words(
    "chunk split tensor_split unbind hsplit vsplit topk sort min_max meshgrid var_mean std_mean "
    "max_pool1d_with_indices max_pool2d_with_indices max_pool3d_with_indices "
    "adaptive_max_pool1d_with_indices adaptive_max_pool2d_with_indices adaptive_max_pool3d_with_indices "
    "fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices multi_head_attention_forward"
)
_SEVERAL_MODULES = (nn.RNNBase, nn.MultiheadAttention, nn.LSTMCell, nn.AdaptiveLogSoftmaxWithLoss)
IN_PLACE_OPERATORS = words("iadd isub imul itruediv ifloordiv imod ipow iand ior ixor")
_IN_PLACE_FUNCTIONS = frozenset(getattr(operator, name) for name in IN_PLACE_OPERATORS)
_NO_READS: Mapping[Node, None] = MappingProxyType({})


def name_of_call(node: Node) -> str:
    """The bare name of the function or method that a step calls: `cat`, `relu_`, `getitem`."""
    return str(node.target) if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def find_reads(graph: fx.Graph) -> dict[Node, None]:
    """The steps that return no tensor but a size, a type, a device, or arithmetic with these.

    A dictionary without values is used as a set that keeps the order of the graph.
    """
    reads: dict[Node, None] = {}
    for node in graph.nodes:
        if _is_read(node, reads):
            reads[node] = None
    return reads


def _is_read(node: Node, reads: Mapping[Node, None]) -> bool:
    inputs = node.all_input_nodes
    if node.op == "call_method":
        return node.target in _READ_METHODS or node.args[0] in reads or _asks_for_type(node)
    if node.op != "call_function" or not inputs:
        return False
    if node.target is getattr:
        return inputs[0] in reads or node.args[1] not in TENSOR_ATTRIBUTES
    is_plain = getattr(node.target, "__module__", "") in _PLAIN_MODULES
    return is_plain and all(value in reads for value in inputs)


def _asks_for_type(node: Node) -> bool:
    # `x.type()` returns a name; `x.type(dtype)` returns a tensor.
    return node.target == "type" and len(node.args) == 1 and not node.kwargs


def mutated_input(node: Node, *, module: nn.Module | None, reads: Mapping[Node, None]) -> Node | None:
    """The value that a step overwrites and returns, or None; `module` is the module that the step calls."""
    if node.op == "output" or not _works_in_place(node, module):
        return None
    target = node.kwargs.get("out") or node.kwargs.get("input") or next(iter(node.args), None)
    return target if isinstance(target, Node) and target not in reads else None


def _works_in_place(node: Node, module: nn.Module | None) -> bool:
    if node.op == "call_module":
        return is_own(module) and getattr(module, "inplace", False) is True
    if node.op == "call_method":
        return _ends_in_place(str(node.target))
    if node.op != "call_function":
        return False
    if node.target in _IN_PLACE_FUNCTIONS or node.kwargs.get("out") is not None:
        return True
    return _ends_in_place(name_of_call(node)) or _argument(node, "inplace") is True


def _ends_in_place(name: str) -> bool:
    # torch marks in-place functions by one trailing underscore; two belong to names such as `__add__`.
    return name.endswith("_") and not name.endswith("__")


def _argument(node: Node, name: str) -> Any:
    """An argument of a function by its name, whether it was passed by position or by keyword."""
    try:
        bound = inspect.signature(node.target).bind(*node.args, **node.kwargs)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        # Many functions of torch are built in and have no signature to inspect.
        return node.kwargs.get(name)
    return bound.arguments.get(name)


def is_own(module: nn.Module | None) -> bool:
    """Whether a layer is part of torch or drivetrain, so that its effect on its inputs is known."""
    return type(module).__module__.startswith(("torch.nn.", "drivetrain."))


def _is_foreign(module: nn.Module | None) -> bool:
    """Whether a layer runs a user's code: its own, that of its hooks, or that of the layers it contains."""
    if module is None or not is_own(module):
        return True
    if isinstance(module, nn.Sequential | nn.ModuleList | nn.ModuleDict):
        return True
    # Hooks of torch itself, such as those of torch.nn.utils.weight_norm, leave inputs and outputs alone.
    return any(not getattr(hook, "__module__", "").startswith("torch.") for hook in hooks_of(module))


def may_change_inputs(node: Node, *, module: nn.Module | None) -> bool:
    """Whether a step calls a user's module, which is not traced and might overwrite its inputs."""
    return node.op == "call_module" and _is_foreign(module)


def inputs_kept_alive(
    node: Node, *, module: nn.Module | None, reads: Mapping[Node, None] = _NO_READS
) -> tuple[Node, ...]:
    """The values whose memory the result of a step may share."""
    values = tuple(value for value in node.all_input_nodes if value not in reads)
    if node.op == "call_module":
        return values if _may_give_back(module) else ()
    if node.op not in ("call_function", "call_method"):
        return ()
    if _works_in_place(node, module):
        target = mutated_input(node, module=module, reads=reads)
        return () if target is None else (target,)
    is_foreign = node.op == "call_function" and not _is_library(node)
    return values if is_foreign or name_of_call(node) in _VIEWS else ()


def _may_give_back(module: nn.Module | None) -> bool:
    if _is_foreign(module):
        return True
    if isinstance(module, _FRESH_MODULES):
        return False
    if isinstance(module, _VIEW_MODULES) or getattr(module, "inplace", False):
        return True
    has_weights = module is not None and next(module.parameters(), None) is not None
    is_torch = type(module).__module__.startswith("torch.nn.")
    return not is_torch and not has_weights


def _is_library(node: Node) -> bool:
    home = getattr(node.target, "__module__", None) or "torch"
    return home.startswith("torch") or home in _PLAIN_MODULES


def gives_several(node: Node) -> bool:
    """Whether a step is known to return several tensors, which cannot be sent between stages as one value."""
    return node.op in ("call_function", "call_method") and name_of_call(node) in _SEVERAL


def may_give_several(node: Node, *, module: nn.Module | None) -> bool:
    """Whether a step might return several tensors, as a user's module or function, or a recurrent layer."""
    if node.op == "call_module":
        return not is_own(module) or isinstance(module, _SEVERAL_MODULES)
    return node.op == "call_function" and not _is_library(node)
