"""Traces code that branches on, loops over or converts sizes, for images of one size and any batch size.

Every recorded step also runs on stand-ins of the tensors, for two batch sizes side by side. A dimension that
is the same for both is a plain number for the model's code. All others depend on the batch size and stay
symbolic, so that the graph serves every batch size. Types, devices and memory layouts stay symbolic too: they
change when a model is moved or runs in another precision.
"""

import operator
import random
from collections.abc import Iterator, Sequence, Set
from contextlib import contextmanager
from operator import attrgetter
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor, fx, nn
from torch.fx import Node
from torch.fx.node import map_arg

from drivetrain.core.errors import RunFailedError
from drivetrain.core.wording import words
from drivetrain.pipeline.graph.stand_ins import attributes_kept, copies, fakes, images_like, is_cheap
from drivetrain.pipeline.graph.tracer import InPlaceProxy, LayerTracer, UntraceableError, calling_line

__all__ = ["SizedTracer"]

# Small, because `x[:4]` of a larger batch would look like a fixed size; even, so that half a batch exists.
_BATCHES = (2, 4)
_SIZE_METHODS = words("size dim ndimension numel nelement is_floating_point is_complex")
_SIZE_FUNCTIONS = (torch.numel, torch.is_floating_point, torch.is_complex)
# The methods as they are before a trace replaces them.
_PLAIN_METHODS = {name: getattr(nn.Module, name) for name in ("__call__", "__getattr__", "__setattr__")}


class _SizedProxy(InPlaceProxy):
    """A value of the traced code whose size is known."""

    tracer: "SizedTracer"

    def __getattr__(self, name: str) -> Any:
        if name in ("shape", "ndim"):
            return self.tracer.size_of(self, name)
        return super().__getattr__(name)

    def __len__(self) -> int:
        length = self.tracer.length_of(self)
        if length is None:
            raise UntraceableError("asks for the length of a batch")
        return length

    def __index__(self) -> NoReturn:
        self.tracer.refuse_conversion(self)

    __int__ = __float__ = __index__


class SizedTracer(LayerTracer):
    """Records a model for images of `image_shape` (without batch): sizes are plain numbers in its code."""

    def __init__(self, *, whole: Set[nn.Module] = frozenset(), image_shape: Sequence[int]) -> None:
        super().__init__(whole=whole)
        self._image_shape = tuple(image_shape)
        self._values: dict[Node, tuple[Any, Any]] = {}

    def record(self, model: nn.Module) -> fx.Graph:
        shapes = [(batch, *self._image_shape) for batch in _BATCHES]
        self._stand_ins = copies() if is_cheap(model, shapes[-1]) else fakes()
        with self._stand_ins.mode:
            self._images = tuple(images_like(model, shape) for shape in shapes)
        return super().record(model)

    def proxy(self, node: Node) -> fx.Proxy:
        return _SizedProxy(node, self)

    def class_of(self, node: Node) -> type:
        if node not in self._values:
            return super().class_of(node)
        value = self._values[node][0]
        # Stand-ins are tensors of another class.
        return Tensor if isinstance(value, Tensor) else type(value)

    def create_node(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> Node:
        node = super().create_node(kind, target, *args, **kwargs)
        if kind != "output" and all(value in self._values for value in node.all_input_nodes):
            self._run(node)
        return node

    def create_proxy(self, kind: str, target: Any, *args: Any, **kwargs: Any) -> Any:
        proxy = super().create_proxy(kind, target, *args, **kwargs)
        if (kind == "call_method" and target in _SIZE_METHODS) or target in _SIZE_FUNCTIONS:
            return self._known(proxy)
        if target in (operator.eq, operator.ne) and self._compares_equal_dimensions(proxy.node):
            return target is operator.eq
        return proxy

    def size_of(self, proxy: _SizedProxy, name: str) -> Any:
        """The shape of a value, or its number of dimensions."""
        return self._known(self.create_proxy("call_function", getattr, (proxy, name), {}))

    def length_of(self, proxy: _SizedProxy) -> int | None:
        """The number of parts of a value; None if it is unknown or depends on the batch size."""
        try:
            first, second = map(len, self._values[proxy.node])
        except (KeyError, TypeError):
            return None
        return first if first == second else None

    def iter(self, obj: fx.Proxy) -> Iterator[Any]:
        length = self.length_of(obj)  # type: ignore[arg-type]
        if length is None:
            return super().iter(obj)
        return iter([obj[index] for index in range(length)])  # type: ignore[index]

    def to_bool(self, obj: fx.Proxy) -> bool:
        if not self._is_plain(obj.node):
            return super().to_bool(obj)
        if not self._compares_types(obj.node):
            raise UntraceableError("branches on the batch size, or on the type or device of a tensor")
        answer = bool(self._values[obj.node][0])
        file, line = calling_line()
        self.create_proxy("call_function", require_answer, (obj, answer, f"{file} line {line}"), {})
        return answer

    def _compares_types(self, node: Node) -> bool:
        """Whether the type of the images is compared; a step checks in each pass that the answer stays.

        The types of other values depend on the precision. Code that compares these is kept whole.
        """
        sides = [side for side in node.args if isinstance(side, Node)]
        is_of_types = all(isinstance(self._values[side][0], torch.dtype) for side in sides)
        sources = {source.op for side in sides for source in side.all_input_nodes}
        is_about_images = "placeholder" in sources and sources <= {"placeholder", "get_attr"}
        return node.target in (operator.eq, operator.ne) and is_of_types and is_about_images

    def refuse_conversion(self, proxy: fx.Proxy) -> NoReturn:
        what = "the batch size" if self._is_plain(proxy.node) else "a tensor"
        raise UntraceableError(f"converts {what} to a plain number")

    def _is_plain(self, node: Node) -> bool:
        return node in self._values and not isinstance(self._values[node][0], Tensor)

    def _known(self, proxy: fx.Proxy) -> Any:
        """Plain numbers where both batch sizes agree."""
        if proxy.node not in self._values:
            return proxy
        first, second = self._values[proxy.node]
        if not isinstance(first, tuple):
            return first if first == second else proxy
        if len(first) != len(second):
            return proxy
        return first if first == second else self._dimensions(proxy, first, second)

    def _dimensions(
        self, proxy: fx.Proxy, first: tuple[int, ...], second: tuple[int, ...]
    ) -> tuple[Any, ...]:
        return tuple(
            one if one == other else proxy[index]  # type: ignore[index]
            for index, (one, other) in enumerate(zip(first, second, strict=True))
        )

    def _compares_equal_dimensions(self, node: Node) -> bool:
        """Whether two dimensions are compared that depend on the batch size in the same way."""
        sides = node.args
        if not all(isinstance(side, Node) and _is_dimension(side) for side in sides):
            return False
        one, other = (self._values.get(side) for side in sides)  # type: ignore[arg-type]
        return one is not None and one == other

    def _run(self, node: Node) -> None:
        """Runs a step for both batch sizes; if that fails, its size is unknown and stays symbolic."""
        try:
            module = self.root.get_submodule(str(node.target)) if node.op == "call_module" else nn.Module()
            with _aside(module), self._stand_ins.mode, torch.no_grad():
                results = tuple(self._result(node, which) for which in range(len(_BATCHES)))
        except Exception:
            return
        self._values[node] = results

    def _result(self, node: Node, which: int) -> Any:
        if node.op == "placeholder":
            return self._images[which]
        if node.op == "get_attr":
            value = attrgetter(str(node.target))(self.root)
            return self._stand_ins.of(value) if isinstance(value, Tensor) else value
        args, kwargs = map_arg((node.args, node.kwargs), lambda value: self._values[value][which])
        if node.op == "call_module":
            return self._stand_ins.call(self.root.get_submodule(str(node.target)), args, kwargs)
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **kwargs)
        return node.target(*args, **kwargs)  # type: ignore[operator]


def require_answer(found: bool, expected: bool, line: str) -> None:
    """Refuses a pass in which code that compares types would take another branch than in the trace."""
    if found is not expected:
        raise RunFailedError(
            f"--model cannot be split into stages in this precision, because {line} compares the types of "
            "tensors, and they were others when it was split; --precision 32.32 works."
        )


def _is_dimension(node: Node) -> bool:
    if node.target is operator.getitem:
        source = node.args[0]
        assert isinstance(source, Node)
        is_shape = source.target is getattr and source.args[1] == "shape"
        return is_shape or (source.op == "call_method" and source.target == "size")
    return node.op == "call_method" and node.target == "size"


@contextmanager
def _aside(called: nn.Module) -> Iterator[None]:
    """Runs a module as if nothing was being traced; restores its attributes and all random generators."""
    patched = {name: getattr(nn.Module, name) for name in _PLAIN_METHODS}
    python, numbers = random.getstate(), np.random.get_state()
    _set_methods(_PLAIN_METHODS)
    try:
        with attributes_kept(called), torch.random.fork_rng(devices=[]):
            yield
    finally:
        _set_methods(patched)
        random.setstate(python)
        np.random.set_state(numbers)


def _set_methods(methods: dict[str, Any]) -> None:
    for name, method in methods.items():
        setattr(nn.Module, name, method)
