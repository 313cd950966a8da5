"""The modes of torch that a model's code sets around its own steps: `no_grad`, `inference_mode`, autocast.

A traced graph has only the steps. Each step therefore notes the modes it was recorded in, and a stage enters
them again around that step.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.fx import Node
from torch.utils._pytree import tree_leaves

__all__ = ["Autocast", "ModeWatch", "StepModes", "modes_of", "runs_without_gradients", "wrapped"]

_META = "step_modes"
_SETTINGS: Mapping[str, Callable[[], object]] = MappingProxyType(
    {
        "the default dtype": torch.get_default_dtype,
        "the deterministic algorithms": torch.are_deterministic_algorithms_enabled,
        "the precision of matrix products": torch.get_float32_matmul_precision,
        "the kernels of attention": lambda: [
            getattr(torch.backends.cuda, f"{kind}_sdp_enabled")()
            for kind in ("flash", "mem_efficient", "math", "cudnn")
        ],
        "how tensors are saved for the backward pass": lambda: (
            torch._C._autograd._top_saved_tensors_default_hooks(True)
        ),
        "how functions of torch behave": torch._C._len_torch_function_stack,
    }
)


@dataclass(frozen=True, slots=True)
class Autocast:
    """The arguments of a `torch.autocast`; None means what is in force when the step runs.

    Without a `device`, which the model took from a tensor, it is that of the step's own tensors.
    """

    device: str | None
    dtype: torch.dtype | None
    enabled: bool
    cache: bool | None

    def entered(self, values: object) -> torch.autocast:
        """The context for a step with these arguments."""
        return torch.autocast(
            self.device or _device_of(values),
            dtype=self.dtype,
            enabled=self.enabled,
            cache_enabled=self.cache,
        )


@dataclass(frozen=True, slots=True)
class StepModes:
    """The modes of one step, as far as the model's own code sets them; autocasts from the outermost on."""

    no_grad: bool = False
    inference: bool = False
    autocasts: tuple[Autocast, ...] = ()

    @contextmanager
    def entered(self, *values: object) -> Iterator[None]:
        """Enters the modes for a step with these arguments."""
        with ExitStack() as stack:
            if self.no_grad:
                stack.enter_context(torch.no_grad())
            if self.inference:
                stack.enter_context(torch.inference_mode())
            for autocast in self.autocasts:
                stack.enter_context(autocast.entered(values))
            yield


def modes_of(node: Node) -> StepModes | None:
    """The modes of a step; None if the model's code sets none."""
    modes: StepModes | None = node.meta.get(_META)
    return modes


def runs_without_gradients(node: Node) -> bool:
    """Whether a step runs under the model's own `no_grad` or `inference_mode`."""
    modes = modes_of(node)
    return modes is not None and (modes.no_grad or modes.inference)


def wrapped(function: Callable[..., Any], modes: StepModes) -> Callable[..., Any]:
    """The function in these modes, built from plain `with` blocks, which torch.compile can follow."""
    for autocast in reversed(modes.autocasts):
        function = _in_autocast(function, autocast)
    if modes.inference:
        function = _in_inference_mode(function)
    return _without_gradients(function) if modes.no_grad else function


def _without_gradients(function: Callable[..., Any]) -> Callable[..., Any]:
    def without_gradients(*args: Any, **kwargs: Any) -> Any:
        with torch.no_grad():
            return function(*args, **kwargs)

    return without_gradients


def _in_inference_mode(function: Callable[..., Any]) -> Callable[..., Any]:
    def in_inference_mode(*args: Any, **kwargs: Any) -> Any:
        with torch.inference_mode():
            return function(*args, **kwargs)

    return in_inference_mode


def _in_autocast(function: Callable[..., Any], autocast: Autocast) -> Callable[..., Any]:
    def in_autocast(*args: Any, **kwargs: Any) -> Any:
        with autocast.entered((args, kwargs)):
            return function(*args, **kwargs)

    return in_autocast


def _device_of(values: object) -> str:
    return next((value.device.type for value in tree_leaves(values) if isinstance(value, Tensor)), "cpu")


class ModeWatch:
    """Follows the modes while a model's code runs in a trace."""

    def __init__(self) -> None:
        self._open: list[tuple[int, Autocast]] = []
        self._regions = 0
        self._cast: dict[int, set[int]] = {}
        self._settings: dict[str, object] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Runs a block with gradients on and notes every `torch.autocast` that this thread enters in it."""
        with torch.inference_mode(False), torch.enable_grad(), self._noted_autocasts():
            self._settings = {name: read() for name, read in _SETTINGS.items()}
            yield

    def note(self, node: Node) -> None:
        """Writes the present modes to a step."""
        inference = torch.is_inference_mode_enabled()
        no_grad = not torch.is_grad_enabled() and not inference
        autocasts = tuple(autocast for _, autocast in self._open)
        if no_grad or inference or autocasts:
            node.meta[_META] = StepModes(no_grad, inference, autocasts)

    @property
    def autocasts(self) -> tuple[Autocast, ...]:
        """The autocasts that are open now."""
        return tuple(autocast for _, autocast in self._open)

    def changed_setting(self) -> str | None:
        """What the model's code has set for the steps that follow and a stage could not repeat."""
        return next((name for name, read in _SETTINGS.items() if read() != self._settings[name]), None)

    def casts_again(self, root: nn.Module, node: Node) -> bool:
        """Whether a step uses a weight that another step used within the same `torch.autocast`.

        Autocast casts it once for both and sums their gradients in 16 bits, which single steps do not.
        """
        if not any(autocast.enabled and autocast.cache is not False for _, autocast in self._open):
            return False
        used = {id(weight) for weight in _weights(root, node)}
        # The cache lives until the outermost autocast ends.
        known = self._cast.setdefault(self._open[0][0], set())
        is_again = bool(used & known)
        known |= used
        return is_again

    @contextmanager
    def _noted_autocasts(self) -> Iterator[None]:
        thread, kind = threading.get_ident(), torch.autocast
        make, enter, leave = kind.__init__, kind.__enter__, kind.__exit__

        def made(self: Any, device_type: Any, dtype: Any = None, *args: Any, **kwargs: Any) -> None:
            taken = isinstance(device_type, fx.Proxy)
            make(self, "cpu" if taken else device_type, dtype, *args, **kwargs)
            cache = kwargs.get("cache_enabled", args[1] if len(args) > 1 else None)
            self._asked = (None if taken else device_type, dtype, cache)

        def entered(one: Any) -> Any:
            if threading.get_ident() == thread:
                # One that was made before the trace has its values already.
                known = (one.device, one.fast_dtype, one._cache_enabled)
                device, dtype, cache = getattr(one, "_asked", known)
                self._regions += 1
                self._open.append((self._regions, Autocast(device, dtype, one._enabled, cache)))
            return enter(one)  # type: ignore[no-untyped-call]

        def left(one: Any, *error: Any) -> Any:
            if threading.get_ident() == thread:
                self._open.pop()
            return leave(one, *error)

        kind.__init__, kind.__enter__, kind.__exit__ = made, entered, left  # type: ignore[method-assign]
        try:
            yield
        finally:
            kind.__init__, kind.__enter__, kind.__exit__ = make, enter, leave  # type: ignore[method-assign]


def _weights(root: nn.Module, node: Node) -> Iterator[nn.Parameter]:
    if node.op == "call_module":
        yield from root.get_submodule(str(node.target)).parameters()
        return
    for value in node.all_input_nodes:
        if value.op == "get_attr":
            owner_path, _, name = str(value.target).rpartition(".")
            weight = root.get_submodule(owner_path)._parameters.get(name)
            if weight is not None:
                yield weight
