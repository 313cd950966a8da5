"""Chooses the memory format of a model's images and weights: channels_last, or torch's default."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call

from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.models.from_recipe import is_own_model
from drivetrain.models.input_form import input_kind_of_model
from drivetrain.models.narrow_convolutions import install_narrow_convolutions
from drivetrain.models.summary import copy_to, devices_to_try
from drivetrain.recipe.schema import Recipe

__all__ = [
    "choose_memory_format",
    "empty_images",
    "follow_memory_format",
    "in_memory_format",
    "memory_format_of",
]

# Batch norm in training refuses a single value per channel, which one sample may give.
_SAMPLES = 2
_KNOWN_CODE = ("drivetrain.", "torch.nn.")


def choose_memory_format(recipe: Recipe, model: nn.Module, *, image_shape: tuple[int, int, int]) -> list[str]:
    """Sets the memory format of a model by `--memory-format`; returns a sentence if `auto` had to give way.

    Call it before the model is moved or cut. The choice depends on the model's code alone, so every command
    and every rank makes the same one. It is kept on the model (and its copies) as a forward pre-hook, which
    hands images to the model in the default layout; without the hook the format is channels_last.
    """
    _set_default_layout(model, is_on=recipe.memory_format == "contiguous")
    if input_kind_of_model(model) != "image":
        return _idle_formats(recipe)
    if recipe.memory_format == "contiguous" or _has_only_known_code(recipe, model):
        return []
    failure = _failure_of_channels_last(model, image_shape)
    if failure is None:
        return []
    if recipe.memory_format == "channels_last":
        raise BadInputError(
            f"--memory-format channels_last: --model cannot run in it: {failure}; --memory-format "
            "contiguous works."
        )
    _set_default_layout(model, is_on=True)
    return [f"--model runs in torch's default memory format, because channels_last fails: {failure}"]


def memory_format_of(model: nn.Module) -> torch.memory_format:
    """The memory format that was chosen for a model."""
    has_hook = any(hook is _lay_out_by_default for hook in model._forward_pre_hooks.values())
    is_default = has_hook or input_kind_of_model(model) != "image"
    return torch.contiguous_format if is_default else torch.channels_last


def in_memory_format(model: nn.Module) -> nn.Module:
    """Converts a model's weights to its memory format, in place."""
    return model.to(memory_format=memory_format_of(model))  # type: ignore[call-overload, no-any-return]


def follow_memory_format(model: nn.Module, *, of: nn.Module) -> None:
    """Gives a module that replaces the model `of` the same memory format."""
    _set_default_layout(model, is_on=memory_format_of(of) == torch.contiguous_format)


def empty_images(shape: tuple[int, ...], *, memory_format: torch.memory_format, device: str) -> Tensor:
    """Images without values, with the strides that images have when a model of this format reads them."""
    samples, channels, height, width = shape
    images = torch.empty(samples, height, width, channels, device=device).permute(0, 3, 1, 2)
    return images if memory_format == torch.channels_last else _by_default(images)


def _set_default_layout(model: nn.Module, *, is_on: bool) -> None:
    hooks = model._forward_pre_hooks
    for key in [key for key, hook in hooks.items() if hook is _lay_out_by_default]:
        del hooks[key]
    if is_on:
        # First, so that the user's own hooks see the layout too.
        model.register_forward_pre_hook(_lay_out_by_default, prepend=True)


def _lay_out_by_default(_model: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(_by_default(value) if isinstance(value, Tensor) else value for value in inputs)


def _by_default(images: Tensor) -> Tensor:
    # `contiguous` would leave grey images as they are: they are contiguous in both formats, but convolutions
    # look at the strides.
    return images.clone(memory_format=torch.contiguous_format)


def _idle_formats(recipe: Recipe) -> list[str]:
    """Rows of a table and signals have no pixels, so their layout is always torch's default."""
    if recipe.memory_format != "channels_last":
        return []
    return ["--memory-format channels_last has no effect: the data are not images."]


def _has_only_known_code(recipe: Recipe, model: nn.Module) -> bool:
    """Whether all layers are Drivetrain's or torch's, which run in every memory format."""
    return is_own_model(recipe) and all(
        type(module).__module__.startswith(_KNOWN_CODE) for module in model.modules()
    )


def _failure_of_channels_last(model: nn.Module, image_shape: tuple[int, int, int]) -> str | None:
    """What fails in channels_last but not in the default layout; None if nothing does.

    A model that fails in both has another problem, which later checks report.
    """
    shape = (_SAMPLES, *image_shape)
    is_large = any(device.type == "meta" for device in devices_to_try(model, shape))
    for is_fake in (True, False) if is_large else (False,):
        failure = _failure(model, shape, memory_format=torch.channels_last, is_fake=is_fake)
        if failure is None:
            return None
        if _failure(model, shape, memory_format=torch.contiguous_format, is_fake=is_fake) is None:
            return failure
    return None


def _failure(
    model: nn.Module, shape: tuple[int, ...], *, memory_format: torch.memory_format, is_fake: bool
) -> str | None:
    try:
        with torch.random.fork_rng(devices=[]):
            (_try_fake if is_fake else _try)(model, shape, memory_format)
    except Exception as error:
        return describe_failure(error)
    return None


def _try(model: nn.Module, shape: tuple[int, ...], memory_format: torch.memory_format) -> None:
    copy = copy_to(torch.device("cpu"), model).to(memory_format=memory_format)  # type: ignore[call-overload]
    install_narrow_convolutions(copy)
    images = empty_images(shape, memory_format=memory_format, device="cpu").zero_()
    _run_backward(copy.train()(images))
    with torch.no_grad():
        copy.eval()(images)


def _try_fake(model: nn.Module, shape: tuple[int, ...], memory_format: torch.memory_format) -> None:
    """The same on fake tensors, which have strides but no values: fast for models of any size.

    The meta device would not do: its convolutions always return the default layout (torch 2.13).
    """
    # Takes seconds to import, and only large models need it.
    from torch._subclasses.fake_tensor import FakeTensorMode

    copy = copy_to(torch.device("meta"), model)
    with FakeTensorMode(allow_non_fake_inputs=True):
        tensors = {name: _fake_like(tensor, memory_format) for name, tensor in _tensors_of(copy)}
        images = empty_images(shape, memory_format=memory_format, device="cpu")
        _run_backward(functional_call(copy.train(), tensors, (images,)))
        with torch.no_grad():
            functional_call(copy.eval(), tensors, (images,))


def _tensors_of(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return chain(model.named_parameters(), model.named_buffers())


def _fake_like(tensor: Tensor, memory_format: torch.memory_format) -> Tensor:
    layout = memory_format if tensor.dim() == 4 else torch.contiguous_format
    made = torch.empty(tensor.shape, dtype=tensor.dtype, memory_format=layout)
    return made.requires_grad_(tensor.requires_grad)


def _run_backward(output: object) -> None:
    if isinstance(output, Tensor) and output.requires_grad:
        output.sum().backward()  # type: ignore[no-untyped-call]
