"""Applies `--freeze`: stops training the named parameters, and freezes the batch norms among them."""

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import nearest_name
from drivetrain.models.half_weights import widened_like
from drivetrain.models.modules import is_inside, replace_modules

__all__ = ["FrozenBatchNorm", "freeze_parameters"]


class FrozenBatchNorm(nn.Module):
    """A batch norm that uses its running statistics in training too, and never updates them."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, original: _BatchNorm) -> None:
        super().__init__()
        self.eps = original.eps
        self.weight = original.weight
        self.bias = original.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(original, name))

    def forward(self, inputs: Tensor) -> Tensor:
        weight, bias = widened_like(self.running_mean, self.weight, self.bias)
        return nn.functional.batch_norm(
            inputs, self.running_mean, self.running_var, weight, bias, False, 0.0, self.eps
        )

    def extra_repr(self) -> str:
        return f"{self.running_mean.numel()}, eps={self.eps}"


def freeze_parameters(model: nn.Module, patterns: Sequence[str]) -> list[str]:
    """Freezes the parameters whose own or layer's name matches a shell pattern; returns their names."""
    frozen: dict[str, None] = {}
    for pattern in patterns:
        matched = [name for name, _ in model.named_parameters() if is_inside(name, pattern)]
        if not matched:
            raise BadInputError(_unmatched(model, pattern))
        frozen.update(dict.fromkeys(matched))
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    if frozen and not any(parameter.requires_grad for parameter in model.parameters()):
        raise BadInputError(
            f"--freeze {' '.join(patterns)} freezes every parameter, so there is nothing to train; "
            f"leave {_owner(list(frozen)[-1])} out."
        )
    if frozen:
        replace_modules(model, _frozen_in_place)
    return list(frozen)


def _frozen_in_place(_name: str, module: nn.Module) -> nn.Module | None:
    if not isinstance(module, _BatchNorm) or module.running_mean is None:
        return None
    parameters = list(module.parameters())
    if not parameters or any(parameter.requires_grad for parameter in parameters):
        return None
    return FrozenBatchNorm(module)


def _unmatched(model: nn.Module, pattern: str) -> str:
    layers = list(dict.fromkeys(_owner(name) for name, _ in model.named_parameters()))
    if not layers:
        return f"--freeze {pattern} matches nothing: the model has no parameters; leave it out."
    nearest = nearest_name(pattern.strip("*"), layers) or layers[0]
    return f"--freeze {pattern} matches no parameter and no layer of the model; --freeze {nearest} works."


def _owner(parameter_name: str) -> str:
    """The name of a parameter's layer; for a parameter of the model itself, its own name."""
    return parameter_name.rpartition(".")[0] or parameter_name
