"""Half precision on a CPU, made safe before anything is computed."""

from drivetrain.devices.cpu_half import make_half_safe, usable_half_names
from drivetrain.recipe.schema import Recipe

__all__ = ["prepare_half_precision"]


def prepare_half_precision(recipe: Recipe, *, device: str | None = None) -> None:
    """Does what `choose_precision` would do later, when data and plans may have computed already.

    For this process and those it starts; `device` stands in for the recipe's. A type that does not run at all
    is left to `choose_precision`, which refuses it.
    """
    if not _asks_for_half(recipe) or not _is_cpu(device or recipe.device):
        return
    if recipe.half_type in usable_half_names():
        make_half_safe(recipe.half_type)


def _asks_for_half(recipe: Recipe) -> bool:
    of_stages = (str(option.get("precision", "")) for option in recipe.stage_options)
    return any(precision.startswith("16.") for precision in (recipe.precision, *of_stages))


def _is_cpu(device: str) -> bool:
    if device != "auto":
        return device.partition(":")[0] == "cpu"
    import torch

    return not torch.accelerator.is_available()
