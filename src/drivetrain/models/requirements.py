"""Checks a user's model: it must return one tensor and save only tensors."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.narrow_convolutions import NarrowCalls, install_narrow_convolutions
from drivetrain.models.summary import copy_to, devices_to_try

__all__ = ["require_plain_state", "require_tensor", "require_tensor_in_training"]

# Batch norm in training refuses a single value per channel, which one sample may give.
_SAMPLES = 2
_EXTRA = "_extra_state"


def require_tensor(output: object, *, mode: str = "") -> None:
    """Raises unless the output is one tensor; `mode` says when the model returned it."""
    if not isinstance(output, Tensor):
        raise BadInputError(
            f"--model returns {_in_words(output)}{mode}; its forward must return one tensor of logits"
            f"{_way_out(output)}."
        )


def require_tensor_in_training(
    model: nn.Module, *, image_shape: tuple[int, int, int], is_cpu: bool = False
) -> None:
    """Raises if a model does not return one tensor in training mode, for example due to auxiliary heads.

    Runs a copy. If the copy fails, nothing is raised here: later checks give a better reason. On a CPU
    (`is_cpu`), convolutions that would corrupt memory are refused too.
    """
    shape = (_SAMPLES, *image_shape)
    calls = NarrowCalls()
    try:
        output = _trained_output(model, shape, calls=calls)
    except Exception:
        return
    require_tensor(output, mode=" in training")
    if is_cpu:
        calls.check()


def _trained_output(model: nn.Module, shape: tuple[int, int, int, int], *, calls: NarrowCalls) -> object:
    device = devices_to_try(model, shape)[0]
    copy = copy_to(device, model).train()
    install_narrow_convolutions(copy)
    with torch.no_grad(), torch.random.fork_rng(devices=[]), calls:
        return copy(torch.zeros(shape, device=device))


def _in_words(output: Any) -> str:
    kind = type(output).__name__
    if isinstance(output, Mapping):
        return f"a {kind} of {', '.join(map(str, output))}"
    if isinstance(output, tuple | list):
        return f"a {kind} of {len(output)} ({', '.join(type(part).__name__ for part in output)})"
    return "None" if output is None else f"a {kind}"


def _way_out(output: Any) -> str:
    """Advice to return the first tensor among several outputs; empty if there is none."""
    parts = output.items() if isinstance(output, Mapping) else _numbered(output)
    key = next((key for key, part in parts if isinstance(part, Tensor)), None)
    return "" if key is None else f", for example output[{key!r}] alone"


def _numbered(output: Any) -> list[tuple[int, Any]]:
    return list(enumerate(output)) if isinstance(output, tuple | list) else []


def require_plain_state(model: nn.Module, *, ranks: int = 1) -> None:
    """Raises if a module's `get_extra_state` returns anything but a tensor: checkpoints contain no pickle.

    With several ranks, any extra state is refused: only `set_extra_state` of a whole model could restore it.
    """
    for name, value in model.state_dict().items():
        module = name.removesuffix(_EXTRA).rstrip(".") or "itself"
        if not isinstance(value, Tensor):
            raise BadInputError(
                f"--model: get_extra_state of module {module} returns a {type(value).__name__}, but a "
                "checkpoint can only store tensors; return a tensor, such as torch.tensor(number)."
            )
        if ranks > 1 and name.rpartition(".")[2] == _EXTRA:
            raise BadInputError(
                f"--model: module {module} has a get_extra_state, which several ranks cannot share; keep the "
                "state in a buffer, or train in one process (--replicas 1, without --stages)."
            )
