"""What a user's model must do: return one tensor, save plain tensors, and say which buffers it moves."""

from collections.abc import Iterator, Mapping
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from drivetrain.core.errors import BadInputError
from drivetrain.models.freeze import FrozenBatchNorm
from drivetrain.models.summary import copy_to, devices_to_try

__all__ = ["moving_buffers", "require_plain_state", "require_tensor", "require_tensor_in_training"]

_SAMPLES = 2
_EXTRA = "_extra_state"


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


# Whether a checkpoint can keep what a model saves: tensors, and nothing that takes pickle.


def require_plain_state(model: nn.Module, *, ranks: int = 1) -> None:
    """Refuses a module whose `get_extra_state` gives something else than a tensor.

    Over several ranks it refuses any: only `set_extra_state` of a whole model can take it back.
    """
    for name, value in model.state_dict().items():
        module = name.removesuffix(_EXTRA).rstrip(".") or "itself"
        if not isinstance(value, Tensor):
            raise BadInputError(
                f"--model: get_extra_state of module {module} gives a {type(value).__name__}, and a "
                "checkpoint keeps tensors alone; let it give a tensor, such as torch.tensor(number)."
            )
        if ranks > 1 and name.rpartition(".")[2] == _EXTRA:
            raise BadInputError(
                f"--model: module {module} has a get_extra_state, which several ranks cannot share; keep it "
                "in a buffer, or train by one process (--replicas 1, without --stages)."
            )


# Buffers of a user's own that a forward pass changes: statistics that nobody averages.


def moving_buffers(model: nn.Module, *, image_shape: tuple[int, int, int]) -> dict[str, bool]:
    """The buffers outside of torch's norms that move in training, and whether the samples decide how.

    Two copies of the model run forward, each on its own images; the model itself stays as it is. A model that
    cannot run so is taken to have none: what is wrong with it shows elsewhere.
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
