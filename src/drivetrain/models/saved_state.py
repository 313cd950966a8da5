"""Whether a checkpoint can keep what a model saves: tensors, and nothing that takes pickle."""

from torch import Tensor, nn

from drivetrain.core.errors import BadInputError

__all__ = ["require_plain_state"]

_EXTRA = "_extra_state"


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
