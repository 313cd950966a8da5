"""A Keras layer without a counterpart in torch, called as it is, on weights that a torch module owns."""

import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.from_keras.leaf import KerasCall, Leaf, WeightLink
from drivetrain.models.from_keras.package import import_keras

__all__ = ["KeptLayer", "kept_layer"]

# The attributes of an operation that hold the graph around it.
_GRAPH = ("_inbound_nodes", "_outbound_nodes", "_lock")


class _Whole:
    """A Keras layer or operation that copies of a module share: nothing writes to its variables.

    It is sent to other processes as its configuration: the values of its weights travel in the torch module.
    """

    def __init__(self, layer: Any, shapes: Sequence[tuple[int | None, ...]]) -> None:
        self.layer, self.shapes = layer, tuple(shapes)

    def __deepcopy__(self, memo: object) -> "_Whole":
        return self

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        import keras

        if not isinstance(self.layer, keras.layers.Layer):
            # An operation has no variables: its class and settings are everything.
            settings = {key: value for key, value in vars(self.layer).items() if key not in _GRAPH}
            return _operation, (type(self.layer), settings)
        kinds = {type(part) for part in self.layer._flatten_layers()}
        users = {kind.__name__: kind for kind in kinds if not kind.__module__.startswith("keras.")}
        arguments = (keras.saving.serialize_keras_object(self.layer), users, self.shapes)
        try:
            _rebuilt(*arguments)
        except Exception as error:
            raise BadInputError(
                f"the Keras layer {self.layer.name} cannot be built again from its configuration; give "
                f"{type(self.layer).__name__} a get_config and a constructor that takes **kwargs"
            ) from error
        return _rebuilt, arguments


def _operation(kind: type, settings: dict[str, Any]) -> _Whole:
    made: Any = object.__new__(kind)
    vars(made).update(settings)
    return _Whole(made, ())


def _rebuilt(config: dict[str, Any], users: dict[str, type], shapes: Sequence[Any]) -> _Whole:
    keras = import_keras()
    with warnings.catch_warnings():
        # A model without a `build` of its own is built by the call below.
        warnings.filterwarnings("ignore", message=".*does not have a `build.*")
        layer = keras.saving.deserialize_keras_object(config, custom_objects=users, safe_mode=False)
    if isinstance(layer, keras.Model):
        layer(*(keras.KerasTensor(shape) for shape in shapes))
    return _Whole(layer, shapes)


class KeptLayer(nn.Module):
    """Calls a Keras layer in a stateless scope, in which its variables have the values of this module.

    What the layer assigns to its variables in training goes into the buffers of this module.
    """

    def __init__(self, call: KerasCall) -> None:
        super().__init__()
        layer = call.layer
        self._whole = _Whole(layer, call.shapes)
        self._fill = Filling(call.arguments)
        self._takes_mode = "training" in getattr(layer, "_call_context_args", ())
        self._names: list[str] = []
        for variable in _variables(layer):
            self._own(variable)

    def _own(self, variable: Any) -> None:
        name = _unique(str(variable.name).replace(".", "_"), self._names)
        self._names.append(name)
        value = variable.value.detach().to("cpu", copy=True)
        if variable.trainable:
            self.register_parameter(name, nn.Parameter(value))
        else:
            self.register_buffer(name, value)

    def links(self) -> tuple[WeightLink, ...]:
        """The links of all weights; their values are already here."""
        pairs = zip(self._names, _variables(self._whole.layer), strict=True)
        return tuple(WeightLink(name=name, variable=variable) for name, variable in pairs)

    def forward(self, *values: Tensor) -> Any:
        import keras

        layer = self._whole.layer
        variables = _variables(layer)
        own = [getattr(self, name) for name in self._names]
        args, kwargs = self._fill(values)
        if self._takes_mode:
            kwargs["training"] = self.training
        with (
            keras.device(str(values[0].device)),
            keras.StatelessScope(list(zip(variables, own, strict=True))) as scope,
        ):
            made = layer(*args, **kwargs)
        if self.training:
            self._take_over(variables, own, scope)
        made = keras.tree.flatten(made)
        return made[0] if len(made) == 1 else tuple(made)

    @torch.no_grad()
    def _take_over(self, variables: Sequence[Any], own: Sequence[Tensor], scope: Any) -> None:
        for variable, tensor in zip(variables, own, strict=True):
            assigned = scope.get_current_value(variable)
            if assigned is not None and assigned is not tensor and not isinstance(tensor, nn.Parameter):
                tensor.copy_(assigned)


def _variables(layer: Any) -> list[Any]:
    return list(getattr(layer, "variables", ()))


def _unique(name: str, taken: Sequence[str]) -> str:
    numbered = (name if number == 1 else f"{name}_{number}" for number in range(1, len(taken) + 2))
    return next(candidate for candidate in numbered if candidate not in taken)


def kept_layer(call: KerasCall) -> Leaf:
    """The leaf of a layer that is called as it is; refuses one that draws from its own generator."""
    _refuse_own_draws(call.layer)
    module = KeptLayer(call)
    return Leaf(module=module, links=module.links())


class Filling:
    """The arguments of a call, with places for the tensors that are known only when it runs."""

    def __init__(self, arguments: Any) -> None:
        import keras

        def place(part: Any) -> Any:
            return _Place() if isinstance(part, keras.KerasTensor) else part

        self.args = keras.tree.map_structure(place, tuple(arguments.args))
        kwargs = {key: part for key, part in arguments.kwargs.items() if key not in ("training", "mask")}
        self.kwargs = keras.tree.map_structure(place, kwargs)

    def __call__(self, values: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        import keras

        remaining = iter(values)

        def fill(part: Any) -> Any:
            return next(remaining) if isinstance(part, _Place) else part

        return keras.tree.map_structure(fill, self.args), dict(keras.tree.map_structure(fill, self.kwargs))


class _Place:
    """Stands for a tensor."""


def _refuse_own_draws(layer: Any) -> None:
    for part in getattr(layer, "_flatten_layers", lambda: (layer,))():
        generators = getattr(part, "_seed_generators", ())
        draws_from_torch = type(part).__name__ == "Dropout" and part.noise_shape is None and part.seed is None
        if generators and not draws_from_torch:
            raise BadInputError(
                f"The Keras layer {part.name} ({type(part).__name__}) draws random numbers from a generator "
                "of its own, so the result would depend on the layout; remove it from the model, and use "
                "options such as --flip or --random-crop for augmentation."
            )
