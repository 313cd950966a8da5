"""Keras's optimizers over one flat vector of weights: the usual ones as Drivetrain's own rules."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from drivetrain.keras_fit.loss import keras_device
from drivetrain.keras_fit.optimiser import OptimiserSpec, scalars_of, slots_of
from drivetrain.models.from_keras.package import import_keras
from drivetrain.optim.rules import Adam, Optimiser, RmsProp, Sgd

__all__ = ["FlatOptimiser", "build_flat_optimiser"]

# By kind, the names that Keras has for the states of our rules.
_SLOTS: Mapping[str, Mapping[str, str]] = {
    "SGD": {"velocity": "momentums"},
    "Adam": {"mean": "_momentums", "square": "_velocities"},
    "AdamW": {"mean": "_momentums", "square": "_velocities"},
    "RMSprop": {"square": "_velocities", "velocity": "_momentums", "mean": "_average_gradients"},
}


class FlatOptimiser(Optimiser, Protocol):
    """An optimiser whose states have the names of Keras; `scalars` are states of a single number."""

    @property
    def scalars(self) -> Mapping[str, Tensor]: ...

    def count_from(self, iterations: int, *, update: int) -> None:
        """Sets how many steps were made before an update."""
        ...


def build_flat_optimiser(spec: OptimiserSpec, values: Tensor) -> FlatOptimiser:
    """The optimiser for flat weights; Keras's own can do everything but be captured on an accelerator."""
    config = spec.config
    is_usual = spec.kind in _SLOTS and not any(config.get(key) for key in ("amsgrad", "use_ema", "clipvalue"))
    if is_usual:
        return RuleOptimiser(_rule(spec.kind, config, values), names=_SLOTS[spec.kind], device=values.device)
    return OwnKerasOptimiser(spec, values)


def _rule(kind: str, config: Mapping[str, Any], values: Tensor) -> Optimiser:
    decay = float(config.get("weight_decay") or 0.0)
    if kind == "SGD":
        return Sgd(values, momentum=config["momentum"], nesterov=bool(config["nesterov"]), weight_decay=decay)
    if kind == "RMSprop":
        return RmsProp(
            values,
            rho=config["rho"],
            momentum=config["momentum"],
            epsilon=config["epsilon"],
            centered=bool(config["centered"]),
            weight_decay=decay,
        )
    return Adam(
        values,
        beta1=config["beta_1"],
        beta2=config["beta_2"],
        epsilon=config["epsilon"],
        bare_epsilon=True,
        weight_decay=decay,
    )


class RuleOptimiser:
    """One of Drivetrain's rules in the form that Keras has."""

    def __init__(self, rule: Optimiser, *, names: Mapping[str, str], device: torch.device) -> None:
        self._rule, self._names = rule, names
        # A tensor, since a captured update reads it.
        self._ahead = torch.zeros((), dtype=torch.int64, device=device)
        self.scalars: dict[str, Tensor] = {}

    @property
    def states(self) -> dict[str, Tensor]:
        return {self._names[name]: flat for name, flat in self._rule.states.items()}

    def count_from(self, iterations: int, *, update: int) -> None:
        self._ahead.fill_(iterations - update)

    def step(self, *, values: Tensor, gradients: Tensor, rate: Tensor, update: Tensor) -> None:
        self._rule.step(values=values, gradients=gradients, rate=rate, update=update + self._ahead)


class OwnKerasOptimiser:
    """One of Keras's own optimizers, whose single variable is a flat vector of weights."""

    def __init__(self, spec: OptimiserSpec, values: Tensor) -> None:
        keras = import_keras()
        kind: Callable[..., Any] = getattr(keras.optimizers, spec.kind).from_config
        with keras_device(values.device):
            self._optimiser = kind(dict(spec.config))
            self._weights = keras.Variable(values.detach().clone(), trainable=True, name="weights")
            self._optimiser.build([self._weights])
        self._weights._value.data = values
        self._device = values.device

    @property
    def states(self) -> dict[str, Tensor]:
        lists = slots_of(self._optimiser, count=1)
        return {name: variables[0].value.data for name, variables in lists.items()}

    @property
    def scalars(self) -> dict[str, Tensor]:
        return {name: variable.value.data for name, variable in scalars_of(self._optimiser).items()}

    def count_from(self, iterations: int, *, update: int) -> None:  # noqa: ARG002
        self._optimiser._iterations.value.data.fill_(iterations)

    @torch.no_grad()
    def step(self, *, values: Tensor, gradients: Tensor, rate: Tensor, update: Tensor) -> None:  # noqa: ARG002
        if not len(values):
            return
        self._optimiser._learning_rate.value.data.copy_(rate)
        with keras_device(self._device):
            self._optimiser.apply([gradients], [self._weights])
