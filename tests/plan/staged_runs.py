"""Small runs in stages, planned and then assembled in this process, which plays all their devices."""

from typing import Any

from drivetrain import make_plan
from drivetrain.assembly.training_parts import assemble
from drivetrain.data.splits import open_data
from drivetrain.devices.device import choose_device
from drivetrain.plan.training_plan import plan_training
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.load import resolve_recipe

__all__ = ["MODELS", "SETTINGS", "assembled", "planned"]

SETTINGS: dict[str, Any] = {"dataset_size": 16, "micro_batch_size": 2, "validation": False, "shuffle": False}
MODELS: dict[str, dict[str, Any]] = {
    "cifar_resnet8": {"model": "cifar_resnet8", "dataset": "synthetic", **SETTINGS},
    "narrow unet": {
        "model": "unet",
        "model_width": 2,
        "dataset": "synthetic-em",
        "image_size": 20,
        **SETTINGS,
    },
    "unet_same": {
        "model": "unet_same",
        "model_width": 4,
        "model_params": {"depth": 2, "dropout": 0.5},
        "dataset": "synthetic-em",
        "image_size": 32,
        **SETTINGS,
    },
}


def planned(name: str, **options: Any) -> dict[str, Any]:
    """What `plan` says of a model of the list."""
    return make_plan(**{**MODELS[name], **options})


def assembled(name: str, **options: Any) -> TrainingProgram:
    """The program of the same run, ready for its first update."""
    recipe = resolve_recipe(overrides={**MODELS[name], **options, "device": "cpu"}).recipe
    data = open_data(recipe)
    plan = plan_training(recipe, samples=len(data.train))
    return assemble(recipe, data=data, model=None, plan=plan, device=choose_device("cpu")).program
