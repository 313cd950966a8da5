"""Finds the state dict in what other programs save: around it, and in front of its names."""

from collections.abc import Mapping

from torch import Tensor

from drivetrain.core.errors import BadInputError

__all__ = ["state_dict_in", "without_prefixes"]

# Averaged weights come first: they are what was validated.
_AVERAGED = ("state_dict_ema", "model_ema", "ema_state_dict", "ema")
_CONTAINERS = (*_AVERAGED, "state_dict", "model_state_dict", "model", "module", "net", "weights")
_PREFIXES = ("module.", "_orig_mod.", "model.")
# A counter that torch.optim.swa_utils.AveragedModel stores beside the weights.
_FOREIGN_COUNTER = "n_averaged"


def state_dict_in(content: object, *, given: str) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors by name in the content of a file; and what there is to say about it."""
    warnings: list[str] = []
    while isinstance(content, Mapping):
        key = next((key for key in _CONTAINERS if isinstance(content.get(key), Mapping)), None)
        if key is None:
            break
        others = [name for name in _CONTAINERS if name != key and isinstance(content.get(name), Mapping)]
        if key in _AVERAGED and others:
            warnings.append(f"{given}: takes the averaged weights {key}, not {others[0]}.")
        content = content[key]
    if not isinstance(content, Mapping) or not _holds_tensors(content):
        raise BadInputError(f"{given} is not a plain state dict of tensors; save model.state_dict() only.")
    tensors = {
        name: value
        for name, value in content.items()
        if isinstance(name, str) and isinstance(value, Tensor) and name != _FOREIGN_COUNTER
    }
    return tensors, warnings


def _holds_tensors(content: Mapping[object, object]) -> bool:
    return any(isinstance(name, str) and isinstance(value, Tensor) for name, value in content.items())


def without_prefixes(tensors: Mapping[str, Tensor]) -> list[dict[str, Tensor]]:
    """The tensors under shorter names, one prefix of a wrapper less each time, while all names have it."""
    shorter: list[dict[str, Tensor]] = []
    names = dict(tensors)
    while prefix := next((prefix for prefix in _PREFIXES if _all_have(names, prefix)), None):
        names = {name.removeprefix(prefix): value for name, value in names.items()}
        shorter.append(names)
    return shorter


def _all_have(names: Mapping[str, Tensor], prefix: str) -> bool:
    return bool(names) and all(name.startswith(prefix) for name in names)
