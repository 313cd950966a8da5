"""Runs the hooks of a whole model that is split into stages and therefore never called itself."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves

from drivetrain.core.errors import BadInputError

__all__ = ["RootHooks"]

_OTHERS = ("_forward_hooks", "_backward_pre_hooks", "_backward_hooks")


class RootHooks:
    """The hooks that `model(images)` would run before and after its forward, in the order of torch.

    With `is_spread`, weights of other ranks have no memory here, so a hook that reads one is refused.
    """

    def __init__(self, model: nn.Module, *, is_spread: bool = False) -> None:
        self._model, self._is_spread = model, is_spread

    @property
    def follow(self) -> bool:
        """Whether hooks run after the forward or in the backward pass."""
        return any(getattr(self._model, name) for name in _OTHERS)

    def before(self, images: Tensor) -> Tensor:
        """The images as the forward of the model gets them."""
        model = self._model
        if not model._forward_pre_hooks:
            return images
        others: Mapping[str, Any] = {name: OrderedDict() for name in _OTHERS}
        with _replaced(model, **others, forward=_arguments), self._guarded():
            args, kwargs = nn.Module._call_impl(model, images)  # type: ignore[no-untyped-call]
        if len(args) != 1 or kwargs or not isinstance(args[0], Tensor):
            raise BadInputError(
                "A forward pre-hook of --model gives its forward more than the images, which stages cannot "
                "pass on; let the hook return one tensor."
            )
        if args[0].requires_grad:
            raise BadInputError(
                "A forward pre-hook of --model uses trained weights, which no stage would train; move what "
                "it does into the forward of the model."
            )
        return args[0]

    def after(self, images: Tensor, output: Tensor) -> Tensor:
        """The output as the caller of the model gets it; `images` are those that `before` returned."""
        model = self._model
        if not self.follow:
            return output
        with (
            _replaced(model, _forward_pre_hooks=OrderedDict(), forward=lambda _: output),
            self._guarded(),
        ):
            result = nn.Module._call_impl(model, images)  # type: ignore[no-untyped-call]
        if not isinstance(result, Tensor):
            raise BadInputError(
                f"A forward hook of --model returns a {type(result).__name__}; it must return one tensor of "
                "logits, or None."
            )
        return result

    def _guarded(self) -> AbstractContextManager[object]:
        return _OwnWeightsOnly() if self._is_spread else nullcontext()


def _arguments(*args: Any, **kwargs: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    return args, kwargs


@contextmanager
def _replaced(model: nn.Module, **attributes: Any) -> Iterator[None]:
    """Replaces attributes of a module for a block, past its `__setattr__`."""
    own = vars(model)
    before = {name: own[name] for name in attributes if name in own}
    own.update(attributes)
    try:
        yield
    finally:
        for name in attributes.keys() - before.keys():
            del own[name]
        own.update(before)


class _OwnWeightsOnly(TorchFunctionMode):
    """Refuses tensors whose memory was freed; a kernel that reads one would end the process."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        for value in tree_leaves((args, kwargs)):
            if isinstance(value, nn.Parameter) and value.numel() and not value.untyped_storage().nbytes():
                raise BadInputError(
                    "A hook of --model reads a weight of a stage on another rank; move what it does into the "
                    "forward of the model, or train without --stages."
                )
        return func(*args, **(kwargs or {}))
