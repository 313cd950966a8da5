"""Other names for options, and options of other hardware that are refused with an explanation."""

import re
from dataclasses import dataclass
from typing import Any, Literal

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean, shown
from drivetrain.recipe.fields import option_name
from drivetrain.recipe.schema import Recipe


@dataclass(frozen=True, slots=True)
class Target:
    """The recipe field that an alias sets; `inverted` if the alias means the opposite.

    `switch` holds the field's values for True and False when the alias is a boolean and the field is not.
    """

    field: str
    inverted: bool = False
    switch: tuple[Any, Any] | None = None


ALIASES = {
    "num_replicas": Target("replicas"),
    "batch_size": Target("micro_batch_size"),
    "dataset_path": Target("data_dir"),
    "model_name": Target("model"),
    "pipeline_num_parallel": Target("num_workers"),
    "max_steps": Target("max_updates"),
    "disable_ckpt_saving": Target("checkpoints", inverted=True),
    "gradient_accumulation": Target("gradient_accumulation_count"),
    "lr": Target("learning_rate"),
    "epochs": Target("num_epochs"),
    "model_dir": Target("output_dir"),
    "kfold": Target("folds"),
    "pipeline_scheduler": Target("pipeline_schedule"),
    "internal_exchange_optimization_target": Target("optimise_for"),
    "internal_exchange_target": Target("optimise_for"),
    "optimize_for": Target("optimise_for"),
    "optimiser_state_offloading": Target("optimizer_state_offloading"),
    "auto_loss_scaling": Target("loss_scaling", switch=("dynamic", 0.0)),
}

REFUSALS = {
    "available_memory_proportion": "a smaller --micro-batch-size with a larger --gradient-accumulation-count "
    "saves memory here, and `drivetrain plan` shows what is needed",
    "gather_conv_output": "PyTorch chooses how its convolutions accumulate, leave it out",
    "max_reduce_many_buffer_size": "PyTorch groups its reductions itself, leave it out",
    "exec_mode": "`train` trains and evaluates, --validation False only trains, --predict-after INPUT "
    "predicts too, and `evaluate RUN` and `predict RUN INPUT` do the rest",
    "on_demand": "devices are acquired when the run starts, leave it out",
}


def target_of(key: str) -> Target | None:
    """The field that an option name means, written with dashes or underscores; None if unknown."""
    name = key.replace("-", "_")
    return Target(name) if name in Recipe.model_fields else ALIASES.get(name)


def refusal_of(key: str) -> str | None:
    """Why an option of other hardware is refused, as one sentence; None for other names."""
    name = key.replace("-", "_")
    reason = REFUSALS.get(name)
    return f"{option_name(name)} has no counterpart here: {reason}." if reason else None


def require_target(key: str, *, separator: Literal["-", "_"] = "-") -> Target:
    """The field a key means, or an error that suggests the nearest name, spelt with `separator`."""
    target = target_of(key)
    if target is not None:
        return target
    refusal = refusal_of(key)
    known = [field.replace("_", separator) for field in (*Recipe.model_fields, *ALIASES)]
    nearest = did_you_mean(re.sub("[-_]", separator, key), known)
    raise BadInputError(refusal or f"{shown(key)} is not an option.{nearest}")
