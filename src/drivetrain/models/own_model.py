"""A model given in Python: a module, or a class or function that creates one."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.data.source import DataSpec
from drivetrain.models.create import build_by, in_working_form
from drivetrain.models.from_keras.model import lower_model
from drivetrain.models.from_keras.package import is_keras_model, require_torch_backend
from drivetrain.models.from_recipe import factory_shape_of, input_shape_of
from drivetrain.models.input_form import set_input_kind
from drivetrain.models.lazy_layers import complete_lazy_layers
from drivetrain.models.modules import as_before_training
from drivetrain.models.parameter_hooks import copy_model
from drivetrain.recipe.schema import Recipe

__all__ = ["GivenModel", "MakeModel", "OwnModel", "dtype_warning", "name_of_given", "require_given_model"]

GivenModel = nn.Module | Callable[..., nn.Module]
MakeModel = Callable[[DataSpec], nn.Module]


@dataclass(frozen=True, slots=True)
class OwnModel:
    """Creates the module to train, for the shape of the data; a given module is copied."""

    given: GivenModel
    recipe: Recipe

    def __call__(self, spec: DataSpec) -> nn.Module:
        """A new module, in float32 on the CPU; it is a torch module, also if a Keras model is given."""
        module = self.in_place(spec)
        try:
            own = in_working_form(_copied(module) if module is self.given else module)
        except Exception as error:
            raise BadInputError(f"The model cannot be copied: {describe_failure(error)}") from error
        return set_input_kind(own, spec.input_kind)

    def in_place(self, spec: DataSpec) -> nn.Module:
        """The given module itself with its lazy layers initialised, or what the class or function returns.

        Of a Keras model, a torch module with copies of its weights.
        """
        recipe = self.recipe
        if is_keras_model(self.given):
            return lower_model(self.given, sample_shape=input_shape_of(recipe, spec)).module
        if isinstance(self.given, nn.Module):
            complete_lazy_layers(self.given, image_shape=input_shape_of(recipe, spec), seed=recipe.seed)
            return self.given
        made = build_by(
            self.given,
            name=recipe.model,
            shape=factory_shape_of(recipe, spec),
            params=recipe.model_params,
            seed=recipe.seed,
        )
        complete_lazy_layers(made, image_shape=input_shape_of(recipe, spec), seed=recipe.seed)
        return made


def _copied(model: nn.Module) -> nn.Module:
    copied = copy_model(model)
    as_before_training(copied)
    return copied


def require_given_model(model: object) -> GivenModel | None:
    """The value of a keyword `model` if it is a module, class or function; None if it is a name or None."""
    if model is None or isinstance(model, str):
        return None
    if is_keras_model(model):
        require_torch_backend(model)
    if isinstance(model, nn.Module) or callable(model):
        return model
    raise BadInputError(
        f"model is of type {type(model).__name__}; give a name such as 'resnet18', a torch.nn.Module, or a "
        "class or function that creates one."
    )


def name_of_given(model: GivenModel) -> str:
    """The name for --model (module:name), so that `evaluate` can build the model again where possible."""
    kind = type(model) if isinstance(model, nn.Module) else model
    while isinstance(kind, partial):
        kind = kind.func
    path = str(getattr(kind, "__qualname__", type(kind).__qualname__))
    name = path.rpartition("<locals>.")[2].strip("<>")
    return f"{getattr(kind, '__module__', type(kind).__module__)}:{name}"


def dtype_warning(model: GivenModel | None) -> str | None:
    """A warning if the model has weights in another dtype than float32, in which they are trained."""
    parameters = model.parameters() if isinstance(model, nn.Module) else ()
    kinds = {parameter.dtype for parameter in parameters if parameter.is_floating_point()}
    other = next(iter(kinds - {torch.float32}), None)
    if other is None:
        return None
    return f"the model has weights in {str(other).removeprefix('torch.')}; they are trained in float32."
