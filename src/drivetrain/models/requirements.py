"""Checks a user's model: it must return one tensor and save only tensors; finds buffers that it changes."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from drivetrain.core.errors import BadInputError
from drivetrain.models.freeze import FrozenBatchNorm
from drivetrain.models.narrow_convolutions import NarrowCalls, install_narrow_convolutions
from drivetrain.models.summary import copy_to, devices_to_try

__all__ = ["moving_buffers", "require_plain_state", "require_tensor", "require_tensor_in_training"]

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


def moving_buffers(model: nn.Module, *, image_shape: tuple[int, int, int]) -> dict[str, bool]:
    """The user's buffers that a forward pass in training changes, and whether the change depends on samples.

    Such buffers are not averaged over replicas. Buffers of torch's norm layers are not included. Two copies
    of the model run forward on different images. If they fail, the result is empty: later checks report why.
    """
    before = dict(_own_buffers(model))
    if not before:
        return {}
    try:
        first, second = (_moved(model, image_shape, seed=seed) for seed in (1, 2))
    except Exception:
        return {}
    return {
        name: not _same(first[name], second[name])
        for name, value in before.items()
        if not _same(value, first[name]) or not _same(value, second[name])
    }


def _own_buffers(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    for prefix, module in model.named_modules():
        if not isinstance(module, _NormBase | FrozenBatchNorm):
            yield from module.named_buffers(prefix=prefix, recurse=False)


@torch.no_grad()
def _moved(model: nn.Module, image_shape: tuple[int, int, int], *, seed: int) -> dict[str, Tensor]:
    copy = deepcopy(model).train()
    with torch.random.fork_rng(devices=[]):
        generator = torch.Generator().manual_seed(seed)
        copy(torch.randn(_SAMPLES, *image_shape, generator=generator))
    return dict(_own_buffers(copy))


def _same(one: Tensor, other: Tensor) -> bool:
    return one.shape == other.shape and torch.equal(one, other)
