"""Initialises lazy layers such as nn.LazyConv2d, whose weight sizes are known only after a first batch."""

from itertools import chain

import torch
from torch import nn
from torch.nn.parameter import is_lazy

from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.core.randomness import stream_key
from drivetrain.models.modules import in_mode

__all__ = ["complete_lazy_layers"]

_SAMPLES = 2
_IMAGE_DIMENSIONS = 3


def complete_lazy_layers(model: nn.Module, *, image_shape: tuple[int, ...], seed: int) -> None:
    """Initialises lazy layers in place by a forward pass on inputs of this shape, seeded with `seed`."""
    if not _unfinished(model):
        return
    with torch.random.fork_rng(devices=[]), torch.no_grad(), in_mode(model, training=False):
        torch.default_generator.manual_seed(stream_key(seed, "init"))
        try:
            model(torch.zeros(_SAMPLES, *image_shape))
        except Exception as error:
            size = "x".join(map(str, image_shape))
            what = "images" if len(image_shape) == _IMAGE_DIMENSIONS else "inputs"
            raise BadInputError(f"--model cannot take {what} of {size}: {describe_failure(error)}") from error
    left = _unfinished(model)
    if left:
        raise BadInputError(
            f"--model's {left[0]} has no size yet, and the forward pass does not set one; use its layer in "
            "forward, or remove it."
        )


def _unfinished(model: nn.Module) -> list[str]:
    tensors = chain(model.named_parameters(), model.named_buffers())
    return [name for name, tensor in tensors if is_lazy(tensor)]
