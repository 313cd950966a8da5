"""Summarises a model: its layers in execution order, their parameters, output shapes and FLOPs."""

from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from drivetrain.catalogue.input_kinds import describe_input
from drivetrain.core.errors import BadInputError
from drivetrain.models.input_fit import why_misfit
from drivetrain.models.input_form import input_kind_of_model
from drivetrain.models.modules import detach_kept_tensors

__all__ = [
    "FlopCounter",
    "LayerRow",
    "ModelTotals",
    "copy_to",
    "describe_layers",
    "devices_to_try",
    "float_dtype_of",
    "summarise_model",
]

# Using the meta device imports torch's compiler, which takes 1.5 to 2.5 s. Below this bound of the cost, a
# real forward pass is faster.
_MAX_REAL_FLOPS = 20e9


def _convolution_flops(_inputs: Tensor, weight: Tensor, outputs: Tensor) -> int:
    return 2 * outputs.numel() * weight[0].numel()


def _transposed_flops(inputs: Tensor, weight: Tensor, _outputs: Tensor) -> int:
    return 2 * inputs.numel() * weight[0].numel()


def _linear_flops(_inputs: Tensor, weight: Tensor, outputs: Tensor) -> int:
    return 2 * outputs.numel() * weight.shape[-1]


_FLOPS_OF: Mapping[Callable[..., Any], Callable[[Tensor, Tensor, Tensor], int]] = {
    functional.conv1d: _convolution_flops,
    functional.conv2d: _convolution_flops,
    functional.conv3d: _convolution_flops,
    functional.conv_transpose1d: _transposed_flops,
    functional.conv_transpose2d: _transposed_flops,
    functional.conv_transpose3d: _transposed_flops,
    functional.linear: _linear_flops,
}


class FlopCounter(TorchFunctionMode):
    """Counts the FLOPs (2 x multiply-adds) of all convolutions and linear layers while it is active.

    It intercepts functions, not modules, so calls of `torch.nn.functional` in a user's model count too.
    """

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: object,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> object:
        named = dict(kwargs or {})
        outputs = func(*args, **named)
        if func in _FLOPS_OF:
            inputs, weight = (*args, *(named[word] for word in ("input", "weight") if word in named))[:2]
            self.flops += _FLOPS_OF[func](inputs, weight, outputs)
        return outputs


@dataclass(frozen=True)
class LayerRow:
    """One step of the forward pass. A layer that runs twice has two rows, but its weights count once."""

    name: str
    kind: str
    output_shape: tuple[int, ...]
    """Of one image, without the batch dimension."""
    parameters: int
    """Parameters of the layer itself, without those of its children."""
    buffers: int
    """Running statistics and other stored values that are not trained."""
    flops: int
    """2 x multiply-adds of convolutions and matrix products in the forward pass of one image."""


@dataclass(frozen=True)
class ModelTotals:
    """The size of a model, and the FLOPs of a forward pass of one image."""

    parameters: int
    trainable: int
    buffers: int
    flops: int


def describe_layers(
    model: nn.Module, *, channels: int, image_size: int, width: int | None = None
) -> list[LayerRow]:
    """The steps of a model in execution order, found by running a copy of it on one input.

    `image_size` is the size of the input, which for a model with an output margin is larger than the image.
    """
    return _trace(model, channels=channels, image_size=image_size, width=width).rows


def summarise_model(
    model: nn.Module, *, channels: int, image_size: int, width: int | None = None
) -> ModelTotals:
    """The totals of a model; they also count what no row of `describe_layers` shows."""
    parameters = list(model.parameters())
    return ModelTotals(
        parameters=sum(parameter.numel() for parameter in parameters),
        trainable=sum(parameter.numel() for parameter in parameters if parameter.requires_grad),
        buffers=sum(buffer.numel() for name, buffer in model.named_buffers() if _is_counted(name)),
        flops=_trace(model, channels=channels, image_size=image_size, width=width).counter.flops,
    )


class _Trace:
    """Observes one forward pass: a row for each leaf module, and for each other module with parameters."""

    def __init__(self, model: nn.Module) -> None:
        self.rows: list[LayerRow] = []
        self.counter = FlopCounter()
        self._counted: set[int] = set()
        # For each running module: the FLOP count at its start plus the FLOPs of the modules inside it.
        self._open: list[int] = []
        for name, module in model.named_modules():
            if _is_step(module):
                self._observe(name, module)

    def run(self, model: nn.Module, image: Tensor) -> "_Trace":
        with torch.no_grad(), torch.random.fork_rng(devices=[]), self.counter:
            model(image)
        return self

    def _observe(self, name: str, module: nn.Module) -> None:
        def enter(_module: nn.Module, _inputs: object) -> None:
            self._open.append(self.counter.flops)

        def leave(_module: nn.Module, _inputs: object, output: object) -> None:
            spent = self.counter.flops - self._open.pop()
            self._open = [level + spent for level in self._open]
            self.rows.append(self._row(name, module, output=output, flops=spent))

        module.register_forward_pre_hook(enter)
        module.register_forward_hook(leave)

    def _row(self, name: str, module: nn.Module, *, output: object, flops: int) -> LayerRow:
        buffers = {key: buffer for key, buffer in module.named_buffers(recurse=False) if _is_counted(key)}
        return LayerRow(
            name=name or "(model)",
            kind=type(module).__name__,
            output_shape=_shape_without_batch(output),
            parameters=self._count_once(list(module.parameters(recurse=False))),
            buffers=self._count_once(list(buffers.values())),
            flops=flops,
        )

    def _count_once(self, tensors: list[Any]) -> int:
        new = [tensor for tensor in tensors if id(tensor) not in self._counted]
        self._counted.update(id(tensor) for tensor in new)
        return sum(tensor.numel() for tensor in new)


def _is_step(module: nn.Module) -> bool:
    is_leaf = next(module.children(), None) is None
    return is_leaf or next(module.parameters(recurse=False), None) is not None


def _is_counted(buffer_name: str) -> bool:
    return not buffer_name.endswith("num_batches_tracked")


def _shape_without_batch(output: object) -> tuple[int, ...]:
    """The shape of the first tensor that a module returned; empty if there is none."""
    if isinstance(output, Tensor):
        return tuple(output.shape[1:])
    parts = list(output.values()) if isinstance(output, dict) else output
    for part in parts if isinstance(parts, list | tuple) else ():
        if isinstance(part, Tensor):
            return tuple(part.shape[1:])
    return ()


def _trace(model: nn.Module, *, channels: int, image_size: int, width: int | None = None) -> _Trace:
    """Runs a copy in evaluation mode, so that the model itself is not changed."""
    shape = (1, channels, image_size, width or image_size)
    for device in devices_to_try(model, shape):
        try:
            return _trace_on(device, model, shape=shape)
        except Exception as error:
            failure = error
    copy, images = copy_to(device, model).eval(), _zeros(model, shape, device)
    raise BadInputError(
        f"The model cannot take {_input_words(model, shape)}: {why_misfit(copy, images, failure)}"
    ) from failure


def _input_words(model: nn.Module, shape: tuple[int, int, int, int]) -> str:
    _, channels, height, width = shape
    kind = input_kind_of_model(model)
    if kind == "image":
        return f"an image of --channels {channels} and --image-size {height}"
    return describe_input(kind, channels=channels, height=height, width=width)


def devices_to_try(model: nn.Module, shape: tuple[int, int, int, int]) -> list[torch.device]:
    """The devices on which to run a model for inspection, in order of preference.

    The CPU is always among them: a user's model may read tensor values, which the meta device does not have.
    """
    num_parameters = sum(parameter.numel() for parameter in model.parameters())
    most_flops = 2 * num_parameters * shape[0] * shape[2] * shape[3]
    names = ("meta", "cpu") if most_flops > _MAX_REAL_FLOPS else ("cpu",)
    return [torch.device(name) for name in names]


def _trace_on(device: torch.device, model: nn.Module, *, shape: tuple[int, ...]) -> _Trace:
    copy = copy_to(device, model).eval()
    image = _zeros(model, shape, device)
    if input_kind_of_model(model) != "image":
        # Layers such as Conv1d take a batch of one row for a signal without samples.
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            copy(torch.cat([image, image]))
    return _Trace(copy).run(copy, image)


def _zeros(model: nn.Module, shape: tuple[int, ...], device: torch.device) -> Tensor:
    return torch.zeros(shape, device=device, dtype=float_dtype_of(model))


def copy_to(device: torch.device, model: nn.Module) -> nn.Module:
    """A deep copy with its tensors on `device`; on the meta device they take no memory."""
    moved: dict[int, Any] = {id(buffer): buffer.detach().to(device, copy=True) for buffer in model.buffers()}
    for parameter in model.parameters():
        data = parameter.detach().to(device, copy=True)
        moved[id(parameter)] = nn.Parameter(data, requires_grad=parameter.requires_grad)
    detach_kept_tensors(model)
    return deepcopy(model, moved)


def float_dtype_of(model: nn.Module) -> torch.dtype:
    """The type of the weights, and so of the images that a model takes."""
    floating = (parameter.dtype for parameter in model.parameters() if parameter.is_floating_point())
    return next(floating, torch.float32)
