"""Applies `--freeze` and `--freeze-norm`: what is not trained, and batch norms that keep their statistics."""

from collections.abc import Sequence
from functools import partial

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import nearest_name
from drivetrain.models.batch_norm_classes import class_around, norm_base, norm_form
from drivetrain.models.half_weights import widened_like
from drivetrain.models.heads import head_parameters
from drivetrain.models.modules import is_inside, replace_modules

__all__ = ["FrozenBatchNorm", "freeze_parameters", "idle_freeze_norm"]

_BACKBONE = "backbone"


class FrozenBatchNorm(nn.Module):
    """A batch norm that uses its running statistics in training too, and never updates them.

    Frozen layers of a class that extends one of torch's batch norms keep that class, with this one inside.
    """

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


class _Frozen1d(FrozenBatchNorm, nn.BatchNorm1d):  # type: ignore[misc]
    pass


class _Frozen2d(FrozenBatchNorm, nn.BatchNorm2d):  # type: ignore[misc]
    pass


class _Frozen3d(FrozenBatchNorm, nn.BatchNorm3d):  # type: ignore[misc]
    pass


_CORE_OF: dict[type[_BatchNorm], type[FrozenBatchNorm]] = {
    nn.BatchNorm1d: _Frozen1d,
    nn.BatchNorm2d: _Frozen2d,
    nn.BatchNorm3d: _Frozen3d,
}


def freeze_parameters(model: nn.Module, patterns: Sequence[str], *, norms: bool | None = None) -> list[str]:
    """Freezes the parameters whose own or layer's name matches a shell pattern; returns their names.

    `norms` True freezes all batch norms with running statistics; False lets frozen ones update theirs.
    """
    frozen: dict[str, None] = {}
    for pattern in patterns:
        frozen.update(dict.fromkeys(_matched(model, pattern)))
    if norms:
        frozen.update(dict.fromkeys(_of_norms(model)))
    for name in frozen:
        model.get_parameter(name).requires_grad_(False)
    if frozen and not any(parameter.requires_grad for parameter in model.parameters()):
        raise BadInputError(_nothing_left(patterns, list(frozen), norms=norms))
    if norms or (frozen and norms is None):
        bare = None if norms else _bare_norms(model, patterns)
        replace_modules(model, partial(_frozen_in_place, bare=bare))
    return list(frozen)


def _bare_norms(model: nn.Module, patterns: Sequence[str]) -> frozenset[str]:
    """The batch norms without parameters in the part that is frozen, by name."""
    names = [name for name, module in model.named_modules() if isinstance(module, _BatchNorm)]
    shells = [pattern for pattern in patterns if pattern != _BACKBONE]
    found = {name for name in names if any(is_inside(name, pattern) for pattern in shells)}
    if _BACKBONE in patterns:
        heads = {_owner(name) for name in head_parameters(model)}
        found |= {name for name in names if not any(is_inside(name, head) for head in heads)}
    return frozenset(found)


def idle_freeze_norm(norms: bool | None, model: nn.Module) -> list[str]:
    """A warning if `--freeze-norm` changes nothing; the model must already be frozen."""
    if norms and not any(isinstance(module, FrozenBatchNorm) for module in model.modules()):
        return ["--freeze-norm True has no effect: the model has no batch norm with running statistics."]
    if norms is False and not any(map(_stands_still, model.modules())):
        return ["--freeze-norm False has no effect: no batch norm of the model is frozen by --freeze."]
    return []


def _matched(model: nn.Module, pattern: str) -> list[str]:
    names = [name for name, _ in model.named_parameters()]
    if pattern != _BACKBONE:
        matched = [name for name in names if is_inside(name, pattern)]
        if not matched:
            raise BadInputError(_unmatched(model, pattern))
        return matched
    head = set(head_parameters(model))
    if head.issuperset(names):
        raise BadInputError(
            f"--freeze {_BACKBONE} freezes nothing, because the model has only a head; leave it out."
        )
    return [name for name in names if name not in head]


def _of_norms(model: nn.Module) -> list[str]:
    """The names of the parameters of batch norms with running statistics."""
    return [
        f"{path}.{name}" if path else name
        for path, module in model.named_modules()
        if isinstance(module, _BatchNorm) and module.running_mean is not None
        for name, _ in module.named_parameters(recurse=False)
    ]


def _nothing_left(patterns: Sequence[str], frozen: list[str], *, norms: bool | None) -> str:
    options = [f"--freeze {' '.join(patterns)}"] if patterns else []
    options += ["--freeze-norm True"] if norms else []
    way_out = f"leave {_owner(frozen[-1])} out" if patterns else "leave it out"
    return f"{' and '.join(options)} freezes every parameter, so there is nothing to train; {way_out}."


def _frozen_in_place(name: str, module: nn.Module, *, bare: frozenset[str] | None) -> nn.Module | None:
    """A frozen norm; `bare` names those without parameters that are frozen too, None stands for all."""
    every = bare is None or name in bare
    if not isinstance(module, _BatchNorm) or not _stands_still(module, every=every):
        return None
    if type(module).__module__.startswith("torch.nn."):
        return FrozenBatchNorm(module)
    _freeze_inside(name, module, every=bare is None)
    return None


def _freeze_inside(name: str, norm: _BatchNorm, *, every: bool) -> None:
    base, form = norm_base(norm), norm_form(norm)
    if base is None or form is None:
        asked, way_out = ("--freeze", "--freeze-norm False lets it update them")
        if every:
            asked, way_out = ("--freeze-norm True", "leave it out")
        raise BadInputError(
            f"{asked} cannot freeze the statistics of {name}: its class {type(norm).__name__} extends a "
            f"batch norm of torch and changes how it computes; {way_out}."
        )
    norm.__class__ = class_around(type(norm), form, _CORE_OF[base])


def _stands_still(module: nn.Module, *, every: bool = False) -> bool:
    """Whether nothing of a batch norm is trained; one without parameters counts only if `every` one does."""
    if not isinstance(module, _BatchNorm) or module.running_mean is None:
        return False
    parameters = list(module.parameters(recurse=False))
    return (every or bool(parameters)) and not any(parameter.requires_grad for parameter in parameters)


def _unmatched(model: nn.Module, pattern: str) -> str:
    layers = list(dict.fromkeys(_owner(name) for name, _ in model.named_parameters()))
    if not layers:
        return f"--freeze {pattern} matches nothing: the model has no parameters; leave it out."
    nearest = nearest_name(pattern.strip("*"), layers) or layers[0]
    return f"--freeze {pattern} matches no parameter and no layer of the model; --freeze {nearest} works."


def _owner(parameter_name: str) -> str:
    """The name of a parameter's layer; for a parameter of the model itself, its own name."""
    return parameter_name.rpartition(".")[0] or parameter_name
