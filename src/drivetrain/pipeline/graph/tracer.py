"""A tracer based on torch.fx that refuses code which torch.fx would silently record wrongly."""

import inspect
import operator
import os
import random
import sys
import sysconfig
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import torch
import torch.utils.checkpoint as checkpointing
from torch import Tensor, fx, nn
from torch.autograd.function import Function, _SingleLevelFunction
from torch.fx.node import map_arg

from drivetrain.core.wording import words
from drivetrain.layers.draws.functions import draws_at
from drivetrain.models.batch_norm_classes import norm_form
from drivetrain.models.modules import hooks_of
from drivetrain.pipeline.graph.node_kinds import (
    IN_PLACE_OPERATORS,
    TENSOR_ATTRIBUTES,
    find_reads,
    gives_several,
    may_give_several,
)
from drivetrain.pipeline.graph.step_modes import ModeWatch

__all__ = [
    "CallRecord",
    "InPlaceProxy",
    "LayerTracer",
    "NeedsSizesError",
    "NoStepsError",
    "UntraceableError",
    "calling_line",
    "user_line",
]

# These change the shape of the tensor itself; other in-place methods, such as `relu_`, only its contents.
_SHAPE_CHANGES = words("resize_ resize_as_ squeeze_ unsqueeze_ t_ transpose_ swapaxes_ swapdims_ set_")
_TORCH_FOLDER = os.path.dirname(torch.__file__)
_PIPELINE_FOLDER = os.path.dirname(os.path.dirname(__file__))
_HIDDEN_FOLDERS = (_TORCH_FOLDER, _PIPELINE_FOLDER, sysconfig.get_path("stdlib") + os.sep, "<")
# Modules of torch.nn whose children are layers of their own; all other torch.nn modules are single layers.
_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
# What these answer in a trace says nothing about a later pass.
_MODE_QUESTIONS = words(
    "is_grad_enabled is_inference_mode_enabled is_autocast_enabled is_autocast_cpu_enabled "
    "get_autocast_dtype get_autocast_cpu_dtype get_autocast_gpu_dtype"
)


class UntraceableError(Exception):
    """Why a module's own code cannot be traced.

    The message completes a sentence: "FILE line N ..." as in "model.py line 7 assigns self.count".
    `instead` is a way that works, if there is one besides a module of its own.
    """

    def __init__(self, message: str, *, instead: str = "") -> None:
        super().__init__(message)
        self.instead = instead


class NeedsSizesError(UntraceableError):
    """Why a module's own code cannot be traced without knowing the values' sizes and types."""


class NoStepsError(UntraceableError):
    """Why a module cannot be traced whose code takes no step, such as a dropout of a user's in evaluation.

    The code may count, check or print. Without a step the graph would drop all of that.
    """

    def __init__(self) -> None:
        super().__init__("does nothing that can be traced")


class CallRecord:
    """The steps that one call of a module recorded, without the steps of the modules inside it."""

    def __init__(self) -> None:
        self.steps: list[tuple[object, ...]] = []
        self.exact_steps: list[str] = []
        self.result = ""
        self.use = 0
        self._draws = 0

    def next_draw(self, path: str) -> tuple[str, int, int]:
        """The place of the next step that draws: the module's path, which run of it, and a number in it."""
        self._draws += 1
        return path, self.use, self._draws - 1

    def is_wired_unlike(self, other: "CallRecord") -> bool:
        """Whether the steps work on other values than those of `other`."""
        return (self.exact_steps, self.result) != (other.exact_steps, other.result)


class InPlaceProxy(fx.Proxy):
    """A value of the traced code.

    `x += y` is recorded as an in-place step; torch.fx would turn it into `x = x + y`. `isinstance` in the
    model's code finds a tensor; torch.fx would say no, and silently record the wrong branch.
    """

    tracer: "LayerTracer"

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return self.tracer.class_of(self.node) if _is_asked_by_model() else type(self)

    def __getattr__(self, name: str) -> Any:
        # At once, so that what follows knows it for a tensor.
        if name in TENSOR_ATTRIBUTES:
            return self.tracer.create_proxy("call_function", getattr, (self, name), {})
        return super().__getattr__(name)


def _in_place_method(name: str) -> Callable[[fx.Proxy, object], fx.Proxy]:
    function = getattr(operator, name)

    def method(self: fx.Proxy, other: object) -> fx.Proxy:
        return self.tracer.create_proxy("call_function", function, (self, other), {})

    return method


for _name in IN_PLACE_OPERATORS:
    setattr(InPlaceProxy, f"__{_name}__", _in_place_method(_name))


class LayerTracer(fx.Tracer):
    """Records a model as a graph of layers; each module in `whole` becomes a single layer.

    An error has an attribute `module_path`: the path of the module whose own code caused it.
    """

    proxy_buffer_attributes = True

    def __init__(self, *, whole: Set[nn.Module] = frozenset()) -> None:
        super().__init__()
        self.whole = whole
        self.records: dict[tuple[str, int], CallRecord] = {}
        self._open: list[tuple[str, CallRecord]] = []
        self._runs: Counter[str] = Counter()
        self._modes = ModeWatch()

    def record(self, model: nn.Module) -> fx.Graph:
        """Traces a model with one input; its parameters and buffers do not change."""
        root_record = CallRecord()
        with self._modes.watching(), _guarded(model), self._recording("", root_record):
            graph = self.trace(model)
            if not torch.is_grad_enabled():
                raise UntraceableError("leaves gradients switched off when it returns")
        self.records["", 0] = root_record
        return graph

    def create_args_for_root(
        self,
        root_fn: Callable[..., Any],
        is_module: bool,  # noqa: ARG002
        concrete_args: Any = None,  # noqa: ARG002
    ) -> tuple[Any, list[Any]]:
        # Only the first argument is an input; all other arguments of forward keep their defaults.
        code = inspect.unwrap(root_fn).__code__
        names = [name for name in code.co_varnames[1:2] if name.isidentifier()]
        return root_fn, [self.root, self.create_proxy("placeholder", (names or ["images"])[0], (), {})]

    def proxy(self, node: fx.Node) -> fx.Proxy:
        return InPlaceProxy(node, self)

    def class_of(self, node: fx.Node) -> type:
        """The class of a value that is surely a tensor; raises for all others."""
        module = self.root.get_submodule(str(node.target)) if node.op == "call_module" else None
        if node in find_reads(self.graph) or gives_several(node) or may_give_several(node, module=module):
            raise NeedsSizesError("asks for the type of a value")
        return torch.Tensor

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, fx.Proxy]) -> Any:  # noqa: ARG002
        """A proxy for a weight or buffer; torch.fx would search all of the model's at every access."""
        name = self._tensor_names.get(id(attr_val)) if isinstance(attr_val, Tensor) else None
        if name is None:
            return attr_val
        if name not in parameter_proxy_cache:
            parameter_proxy_cache[name] = self.create_proxy("get_attr", name, (), {})
        return parameter_proxy_cache[name]

    @cached_property
    def _tensor_names(self) -> dict[int, str]:
        """The first name of each parameter and buffer, by its identity."""
        named = (*self.root.named_parameters(), *self.root.named_buffers())
        return {id(tensor): name for name, tensor in named}

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:  # noqa: ARG002
        # A trace would call hooks once, and stages never again.
        if m in self.whole or hooks_of(m):
            return True
        if type(m).__module__.startswith("torch.nn."):
            return not isinstance(m, _CONTAINERS)
        if next(m.children(), None) is not None:
            # The owner of batch norms gives the layer another class, which a traced one would not run.
            return norm_form(m) is not None
        is_layer = type(m).__module__.startswith("drivetrain.") or _extends_a_torch_layer(m)
        return is_layer or any(True for _ in m.parameters()) or any(True for _ in m.buffers())

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        path = self.path_of_module(m)
        if self.is_leaf_module(m, path):
            return super().call_module(m, forward, args, kwargs)
        record = CallRecord()
        record.use = self._runs[path]
        self._runs[path] += 1
        self._note("call", path, (), {})
        with self._recording(path, record):
            result = super().call_module(m, forward, args, kwargs)
            record.result = repr(result)
            if not record.steps:
                raise NoStepsError
        calls = sum(1 for known, _ in self.records if known == path)
        self.records[path, calls] = record
        return result

    @contextmanager
    def _recording(self, path: str, record: CallRecord) -> Iterator[None]:
        self._open.append((path, record))
        before = _random_state()
        try:
            yield
            if _random_state() != before:
                raise UntraceableError("draws random numbers of its own")
        except Exception as error:
            if not hasattr(error, "module_path"):
                error.module_path = path  # type: ignore[attr-defined]
            raise
        finally:
            self._open.pop()

    def create_node(
        self,
        kind: str,
        target: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        name: str | None = None,
        type_expr: Any | None = None,
    ) -> fx.Node:
        self._refuse_hidden_effects(kind, target, args)
        node = super().create_node(kind, target, args, kwargs, name, type_expr)
        node.meta["scope"] = self._open[-1][0] if self._open else ""
        if draws_at(node) is not None:
            node.meta["draw"] = self._open[-1][1].next_draw(self._open[-1][0])
        if kind.startswith("call"):
            self._note_modes(node)
        node.meta["line"] = calling_line()
        self._note(kind, target, args, kwargs)
        return node

    def _note_modes(self, node: fx.Node) -> None:
        self._modes.note(node)
        changed = self._modes.changed_setting()
        if changed is not None:
            raise UntraceableError(f"runs in a block that changes {changed}")
        if self._modes.casts_again(self.root, node):
            raise UntraceableError("uses a weight a second time inside torch.autocast, which casts it once")

    def _note(self, kind: str, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        record = self._open[-1][1]
        nameless = repr(map_arg((args, kwargs), lambda _node: None))
        # torch.fx numbers constants anew in each trace, so their names cannot be compared.
        shown_target = "constant" if str(target).startswith("_tensor_constant") else target
        record.steps.append((kind, shown_target, nameless, self._modes.autocasts))
        record.exact_steps.append(repr((args, kwargs)))

    def _refuse_hidden_effects(self, kind: str, target: Any, args: tuple[Any, ...]) -> None:
        name = target if isinstance(target, str) else getattr(target, "__name__", "")
        if kind not in ("call_method", "call_function") or not name.endswith("_") or name.endswith("__"):
            return
        if kind == "call_method" and name in _SHAPE_CHANGES:
            raise UntraceableError(f"changes the shape of a tensor in place ({name})")
        if args and isinstance(args[0], fx.Node) and args[0].op == "get_attr":
            raise UntraceableError(f"changes {args[0].target} in place")


def _extends_a_torch_layer(module: nn.Module) -> bool:
    bases = (base for base in type(module).__mro__ if base not in (nn.Module, *_CONTAINERS))
    return any(base.__module__.startswith("torch.nn.") for base in bases)


def _random_state() -> tuple[object, ...]:
    kind, keys, *rest = np.random.get_state(legacy=True)
    assert isinstance(keys, np.ndarray)
    return torch.get_rng_state().numpy().tobytes(), random.getstate(), kind, keys.tobytes(), *rest


def calling_line() -> tuple[str, int]:
    """File and line of the model's code that is being traced."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_hidden(frame.f_code.co_filename):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno


def _is_asked_by_model() -> bool:
    """Whether `isinstance` or `torch.is_tensor` was called by the model's code."""
    frame = sys._getframe(2)
    # Functions of torch that are written in C ask as well, with the model's code as the calling frame.
    names_it = "isinstance" in frame.f_code.co_names
    if frame.f_code.co_name == "is_tensor" and frame.f_back is not None:
        frame = frame.f_back
    return names_it and not _is_hidden(frame.f_code.co_filename)


def _is_hidden(filename: str) -> bool:
    return filename.startswith(_HIDDEN_FOLDERS)


def user_line(frames: list[tuple[str, int]]) -> str:
    """'FILE line N' of the innermost frame that is neither torch's nor the tracer's, or ''."""
    for filename, line in reversed(frames):
        if not _is_hidden(filename):
            return f"{os.path.relpath(filename)} line {line}"
    return ""


@contextmanager
def _guarded(model: nn.Module) -> Iterator[None]:
    """Refuses code that a graph cannot hold while a model is traced.

    These are custom autograd functions, checkpoint regions, assignments to module attributes, and questions
    about the grad mode or autocast.

    The patches are global, so calls that have nothing to do with this trace are passed through.
    """
    thread = threading.get_ident()
    own = set(model.modules())
    plain_set = nn.Module.__setattr__

    def apply(cls: type[Function], *args: Any, **kwargs: Any) -> Any:
        if any(isinstance(value, fx.Proxy) for value in (*args, *kwargs.values())):
            if cls is checkpointing.CheckpointFunction:
                raise _checkpoint_refusal()
            raise UntraceableError(f"calls {cls.__name__}, which has its own backward pass")
        return super(_SingleLevelFunction, cls).apply(*args, **kwargs)  # type: ignore[misc]

    def set_attribute(self: nn.Module, name: str, value: Any) -> None:
        is_constant = self is model and name.startswith("_tensor_constant")
        if threading.get_ident() == thread and self in own and not is_constant:
            raise UntraceableError(f"assigns self.{name}")
        plain_set(self, name, value)

    def checkpoint(*args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() == thread:
            raise _checkpoint_refusal()
        return plain_checkpoint(*args, **kwargs)

    # Patching the base class also catches `name = MyFunction.apply`, bound when the user's file was imported.
    _SingleLevelFunction.apply = classmethod(apply)  # type: ignore[attr-defined]
    nn.Module.__setattr__ = set_attribute  # type: ignore[method-assign]
    # `checkpoint` looks this name up in each call, so that it also catches `from ... import checkpoint`.
    plain_checkpoint = checkpointing._checkpoint_without_reentrant_generator
    checkpointing._checkpoint_without_reentrant_generator = checkpoint
    try:
        with _unanswered(thread):
            yield
    finally:
        del _SingleLevelFunction.apply  # type: ignore[attr-defined]
        nn.Module.__setattr__ = plain_set  # type: ignore[method-assign]
        checkpointing._checkpoint_without_reentrant_generator = plain_checkpoint


def _checkpoint_refusal() -> UntraceableError:
    return UntraceableError("calls torch.utils.checkpoint", instead="use --recomputation instead of it")


@contextmanager
def _unanswered(thread: int) -> Iterator[None]:
    """Refuses code of the model that asks for the grad mode or autocast; torch itself may ask."""

    def guarded(name: str, plain: Callable[..., Any]) -> Callable[..., Any]:
        def question(*args: Any, **kwargs: Any) -> Any:
            asker = sys._getframe(1).f_code.co_filename
            if threading.get_ident() == thread and not _is_hidden(asker):
                raise UntraceableError(f"asks torch.{name}, which differs between passes")
            return plain(*args, **kwargs)

        return question

    plain = {name: getattr(torch, name) for name in _MODE_QUESTIONS if hasattr(torch, name)}
    try:
        for name, function in plain.items():
            setattr(torch, name, guarded(name, function))
        yield
    finally:
        for name, function in plain.items():
            setattr(torch, name, function)
