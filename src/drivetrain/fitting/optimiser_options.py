"""The optimiser that a Keras model was compiled with, as options of a recipe."""

from collections.abc import Mapping
from typing import Any

from drivetrain.core.errors import BadInputError

__all__ = ["optimiser_options"]

# By option, the attributes of Keras's optimisers.
_PARAMS: Mapping[str, Mapping[str, str]] = {
    "SGD": {"momentum": "momentum", "nesterov": "nesterov"},
    "Adam": {"beta1": "beta_1", "beta2": "beta_2", "epsilon": "epsilon"},
    "AdamW": {"beta1": "beta_1", "beta2": "beta_2", "epsilon": "epsilon"},
    "RMSprop": {"rho": "rho", "momentum": "momentum", "epsilon": "epsilon", "centered": "centered"},
}
_NAMES = {"SGD": "sgd", "Adam": "adam", "AdamW": "adamw", "RMSprop": "rmsprop"}
# Settings that change an update and have no counterpart here, with what to use in their place.
_UNKNOWN: Mapping[str, str] = {
    "amsgrad": "use an optimiser without it",
    "clipnorm": "global_clipnorm clips by the norm of all gradients together",
    "clipvalue": "global_clipnorm clips by the norm of all gradients together",
    "use_ema": "the option ema of drivetrain.train averages weights",
    "loss_scale_factor": "the option loss_scaling of drivetrain.train scales the loss",
    "gradient_accumulation_steps": "the option gradient_accumulation of drivetrain.train accumulates",
}


def optimiser_options(optimizer: Any) -> dict[str, Any]:
    """Options that give the same update as a Keras optimiser; refuses settings that have no counterpart."""
    kind = type(optimizer).__name__
    if kind not in _NAMES or not type(optimizer).__module__.startswith("keras."):
        raise BadInputError(
            f"The model is compiled with the optimiser {kind}, which is not available here; compile it with "
            f"one of {', '.join(_NAMES)}."
        )
    _refuse_unknown_settings(optimizer, kind)
    return {
        "optimizer": _name(optimizer, kind),
        "optimizer_params": _params(optimizer, kind),
        "lr_schedule": "const",
        "learning_rate": _rate(optimizer),
        **({"weight_decay": float(optimizer.weight_decay)} if optimizer.weight_decay else {}),
        **({"clip_norm": optimizer.global_clipnorm} if optimizer.global_clipnorm else {}),
    }


def _name(optimizer: Any, kind: str) -> str:
    # Keras's Adam has decoupled weight decay too, if it is asked for.
    return "adamw" if kind == "Adam" and optimizer.weight_decay else _NAMES[kind]


def _params(optimizer: Any, kind: str) -> dict[str, Any]:
    params = {key: getattr(optimizer, attribute) for key, attribute in _PARAMS[kind].items()}
    return {**params, "bare_epsilon": True} if kind in ("Adam", "AdamW") else params


def _refuse_unknown_settings(optimizer: Any, kind: str) -> None:
    for setting, advice in _UNKNOWN.items():
        value = getattr(optimizer, setting, None)
        if value is not None and value is not False:
            raise BadInputError(
                f"The model is compiled with {kind}({setting}={value}), which has no counterpart here; "
                f"{advice}."
            )
    excluded = getattr(optimizer, "_exclude_from_weight_decay", None)
    if optimizer.weight_decay and excluded:
        raise BadInputError(
            f"The model is compiled with {kind}, and some weights are excluded from its weight decay; here "
            "it applies to all weights."
        )


def _rate(optimizer: Any) -> float:
    schedule = optimizer._learning_rate
    if type(schedule).__module__.endswith("learning_rate_schedule"):
        raise BadInputError(
            f"The model is compiled with the schedule {type(schedule).__name__}; give drivetrain.train the "
            "option lr_schedule in its place, with a number as learning rate in compile."
        )
    return float(optimizer.learning_rate)
