"""The optimizer that a Keras model was compiled with: its settings, its rate and its state."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.models.from_keras.package import import_keras

__all__ = ["OptimiserSpec", "optimiser_of", "rate_at", "scalars_of", "slots_of"]

# Every weight moves by its own gradient alone, so one flat vector moves as its parts would.
_BY_ELEMENT = (
    "SGD",
    "Adam",
    "AdamW",
    "Adamax",
    "Nadam",
    "Adagrad",
    "Adadelta",
    "RMSprop",
    "Ftrl",
    "Lion",
)
_NOT_SLOTS = ("_variables", "_trainable_variables", "_iterations", "_learning_rate")


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimiserSpec:
    """An optimiser as it is sent to other processes; clipping by norm is apart: it sees all weights."""

    kind: str
    config: Mapping[str, Any]
    clipnorm: float | None
    global_clipnorm: float | None


def optimiser_of(model: Any) -> OptimiserSpec:
    """The optimiser that a model was compiled with; refuses one that looks at more than single weights."""
    optimiser = model.optimizer
    if optimiser is None:
        raise BadInputError(
            "The model was compiled without an optimizer; model.compile(optimizer='sgd', ...) gives it one."
        )
    kind = type(optimiser).__name__
    is_of_keras = type(optimiser).__module__.startswith("keras.")
    if kind not in _BY_ELEMENT or not is_of_keras:
        raise BadInputError(
            f"The optimizer {kind} cannot be used inside the scope; use one of {', '.join(_BY_ELEMENT)}."
        )
    if optimiser.gradient_accumulation_steps:
        steps = optimiser.gradient_accumulation_steps
        raise BadInputError(
            f"The optimizer's gradient_accumulation_steps={steps} cannot be used inside the scope; use "
            f"scope(gradient_accumulation={steps}) with a batch_size {steps} times as large."
        )
    if getattr(optimiser, "_exclude_from_weight_decay", None) or getattr(
        optimiser, "_exclude_from_weight_decay_pattern", None
    ):
        raise BadInputError(
            "optimizer.exclude_from_weight_decay cannot be used inside the scope; leave it out, or train "
            "outside of the scope."
        )
    if optimiser.loss_scale_factor is not None:
        raise BadInputError("loss_scale_factor has no use in float32; build the optimizer without it.")
    config = {**optimiser.get_config(), "learning_rate": 0.0, "clipnorm": None, "global_clipnorm": None}
    return OptimiserSpec(
        kind=kind,
        config=config,
        clipnorm=optimiser.clipnorm,
        global_clipnorm=optimiser.global_clipnorm,
    )


def rate_at(optimiser: Any, iteration: int) -> float:
    """The learning rate of an update: of the variable as it is now, of a schedule or of a function."""
    keras = import_keras()
    rate = optimiser._learning_rate
    if isinstance(rate, keras.optimizers.schedules.LearningRateSchedule):
        return float(rate(iteration))
    return float(rate()) if not isinstance(rate, keras.Variable) else float(rate.value)


def slots_of(optimiser: Any, *, count: int) -> dict[str, list[Any]]:
    """The lists of variables that an optimiser keeps, one variable per weight, by attribute."""
    own = {id(variable) for variable in optimiser.variables}
    return {
        key: list(value)
        for key, value in vars(optimiser).items()
        if key not in _NOT_SLOTS
        and isinstance(value, list)
        and len(value) == count
        and all(id(variable) in own for variable in value)
    }


def scalars_of(optimiser: Any) -> dict[str, Any]:
    """The single variables that an optimiser keeps beside its counter and its learning rate."""
    keras = import_keras()
    return {
        key: value
        for key, value in vars(optimiser).items()
        if key not in _NOT_SLOTS and isinstance(value, keras.Variable)
    }
