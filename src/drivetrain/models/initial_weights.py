"""Applies `--init-from`: weights of another training, taken by name and shape."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError

__all__ = ["load_initial_weights"]

_MOST_NAMED = 3
_COUNTER = "num_batches_tracked"


def load_initial_weights(model: nn.Module, path: str) -> list[str]:
    """Takes over what `path` holds; returns a warning for a classifier head that stays as it is."""
    # Runs come after models; only this option reaches for them.
    from drivetrain.models.weights_file import read_weights

    found, warnings = read_weights(path)
    own = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    head = [
        name for name in _head_tensors(model) if name in found and _has_other_classes(own[name], found[name])
    ]
    fitting = {name for name in found if name in own and found[name].shape == own[name].shape}
    _check_fit(own, found, head=head, fitting=fitting, path=path)
    with torch.no_grad():
        for name in fitting:
            own[name].copy_(found[name])
    return [*warnings, *([_head_warning(own, found, head=head, path=path)] if head else [])]


def _head_tensors(model: nn.Module) -> list[str]:
    """The parameters of the last layer that has some."""
    names = [name for name, _ in model.named_parameters()]
    layer = names[-1].rpartition(".")[0] if names else ""
    return [name for name in names if name.rpartition(".")[0] == layer]


def _has_other_classes(own: Tensor, found: Tensor) -> bool:
    is_alike = own.ndim == found.ndim >= 1 and own.shape[1:] == found.shape[1:]
    return is_alike and own.shape[0] != found.shape[0]


def _check_fit(
    own: Mapping[str, Tensor], found: Mapping[str, Tensor], *, head: list[str], fitting: set[str], path: str
) -> None:
    if not any(name for name in fitting if not name.endswith(_COUNTER)):
        raise BadInputError(
            f"--init-from {path} holds nothing that fits the model; name weights of this --model."
        )
    problems = [problem for problem in _mismatches(own, found, head=head) if problem]
    if problems:
        named = ", ".join(problems[:_MOST_NAMED])
        more = f" and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
        raise BadInputError(
            f"--init-from {path} does not fit the model: {named}{more}; name weights of this --model."
        )


def _mismatches(own: Mapping[str, Tensor], found: Mapping[str, Tensor], *, head: list[str]) -> list[str]:
    """One phrase for each tensor that is missing, of another shape, or too many; counters do not matter."""
    phrases: list[str] = []
    for name in own:
        if name not in found and not name.endswith(_COUNTER):
            phrases.append(f"{name} is missing")
        elif name in found and found[name].shape != own[name].shape and name not in head:
            phrases.append(f"{name} is {_size(found[name])} instead of {_size(own[name])}")
    unexpected = [name for name in found if name not in own and not name.endswith(_COUNTER)]
    return phrases + [f"{name} is not in the model" for name in unexpected]


def _head_warning(
    own: Mapping[str, Tensor], found: Mapping[str, Tensor], *, head: list[str], path: str
) -> str:
    name = head[0]
    layer = name.rpartition(".")[0] or name
    return (
        f"--init-from {path} has {found[name].shape[0]} classes, the model {own[name].shape[0]}: "
        f"{layer} starts from its own fresh weights."
    )


def _size(tensor: Tensor) -> str:
    return "x".join(map(str, tensor.shape)) or "a single number"
