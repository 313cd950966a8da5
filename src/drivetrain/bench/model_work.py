"""What one forward pass of a model computes and moves: its FLOPs, weights and activations, counted once."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from drivetrain.models.summary import copy_to, devices_to_try, float_dtype_of, summarise_model

__all__ = ["ModelWork", "count_work"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWork:
    """The size of a model and the work of its forward pass.

    `weight_bytes` are read once for each batch. `activation_bytes` are read and written for each image, if
    every operation runs by itself. Both are None if they could not be counted.
    """

    parameters: int
    trainable: int
    flops_per_image: int
    weight_bytes: int | None = None
    activation_bytes: int | None = None

    def to_json(self) -> dict[str, int]:
        """Plain values for a JSON file, without what is not known."""
        values = {name: getattr(self, name) for name in self.__slots__}
        return {name: value for name, value in values.items() if value is not None}


def count_work(model: nn.Module, *, image_shape: tuple[int, int, int], dtype: torch.dtype) -> ModelWork:
    """Counts a model that is not changed; `dtype` is the type in which it computes."""
    channels, height, width = image_shape
    totals = summarise_model(model, channels=channels, image_size=height, width=width)
    moved = _moved_values(model, (1, *image_shape))
    return ModelWork(
        parameters=totals.parameters,
        trainable=totals.trainable,
        flops_per_image=totals.flops,
        weight_bytes=None if moved is None else moved.of_weights * dtype.itemsize,
        activation_bytes=None if moved is None else moved.of_activations * dtype.itemsize,
    )


class _MovedValues(TorchDispatchMode):  # type: ignore[no-untyped-call, unused-ignore]
    """Counts the values that operations read and write; those that only view a tensor move nothing."""

    def __init__(self, weights: Sequence[Tensor]) -> None:
        super().__init__()  # type: ignore[no-untyped-call, unused-ignore]
        self._weights = {id(tensor) for tensor in weights}
        self.of_weights = 0
        self.of_activations = 0

    def __torch_dispatch__(
        self,
        func: Any,
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        outputs = func(*args, **dict(kwargs or {}))
        if not _is_view(func):
            for tensor in [*_tensors(args), *_tensors(outputs)]:
                self._count(tensor)
        return outputs

    def _count(self, tensor: Tensor) -> None:
        if id(tensor) in self._weights:
            self.of_weights += tensor.numel()
        else:
            self.of_activations += tensor.numel()


def _is_view(func: Any) -> bool:
    aliases = [result.alias_info for result in func._schema.returns]
    return any(alias is not None and not alias.is_write for alias in aliases)


def _tensors(value: object) -> list[Tensor]:
    if isinstance(value, Tensor):
        return [value]
    return [tensor for part in value for tensor in _tensors(part)] if isinstance(value, list | tuple) else []


def _moved_values(model: nn.Module, shape: tuple[int, int, int, int]) -> _MovedValues | None:
    for device in devices_to_try(model, shape):
        # A count is not worth a failed benchmark, whatever a user's model does when it is copied.
        with suppress(Exception):
            return _moved_on(device, model, shape)
    return None


def _moved_on(device: torch.device, model: nn.Module, shape: tuple[int, int, int, int]) -> _MovedValues:
    copy = copy_to(device, model).eval()
    counter = _MovedValues([*copy.parameters(), *copy.buffers()])
    image = torch.zeros(shape, device=device, dtype=float_dtype_of(model))
    with torch.no_grad(), torch.random.fork_rng(devices=[]), counter:
        copy(image)
    return counter
