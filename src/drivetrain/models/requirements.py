"""What a model's forward returns must be one tensor, in evaluation and in training."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.summary import copy_to, devices_to_try

__all__ = ["require_tensor", "require_tensor_in_training"]

_SAMPLES = 2


def require_tensor(output: object, *, mode: str = "") -> None:
    """Refuses what no loss can be computed of; `mode` is when the model returned it."""
    if not isinstance(output, Tensor):
        raise BadInputError(
            f"--model returns {_in_words(output)}{mode}; its forward must return one tensor of logits"
            f"{_way_out(output)}."
        )


def require_tensor_in_training(model: nn.Module, *, image_shape: tuple[int, int, int]) -> None:
    """Refuses a model that returns more in training than in evaluation, as those with auxiliary heads do.

    A copy of it runs; a model that cannot run so is left to whatever says why.
    """
    shape = (_SAMPLES, *image_shape)
    try:
        output = _trained_output(model, shape)
    except Exception:
        return
    require_tensor(output, mode=" in training")


def _trained_output(model: nn.Module, shape: tuple[int, int, int, int]) -> object:
    device = devices_to_try(model, shape)[0]
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        return copy_to(device, model).train()(torch.zeros(shape, device=device))


def _in_words(output: Any) -> str:
    kind = type(output).__name__
    if isinstance(output, Mapping):
        return f"a {kind} of {', '.join(map(str, output))}"
    if isinstance(output, tuple | list):
        return f"a {kind} of {len(output)} ({', '.join(type(part).__name__ for part in output)})"
    return "None" if output is None else f"a {kind}"


def _way_out(output: Any) -> str:
    """How to return the first tensor of several, where there is one."""
    parts = output.items() if isinstance(output, Mapping) else _numbered(output)
    key = next((key for key, part in parts if isinstance(part, Tensor)), None)
    return "" if key is None else f", for example output[{key!r}] alone"


def _numbered(output: Any) -> list[tuple[int, Any]]:
    return list(enumerate(output)) if isinstance(output, tuple | list) else []
