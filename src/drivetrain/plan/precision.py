"""The precision of a planned training in words; the device it names need not be on this machine."""

from drivetrain.recipe.schema import Recipe

__all__ = ["compute_type", "is_cpu", "precision_in_words"]


def compute_type(recipe: Recipe, precision: str) -> str:
    """The torch type in which `precision` computes, for the whole model or for one stage."""
    if precision == "auto":
        return "float32" if is_cpu(recipe.device) else "bfloat16"
    return "float32" if precision == "32.32" else recipe.half_type


def precision_in_words(recipe: Recipe) -> str:
    """The precision as `--precision` writes it, with the compute type and the rounding."""
    kind = compute_type(recipe, recipe.precision)
    asked = recipe.precision
    if asked == "auto":
        asked = "32.32" if kind == "float32" else "16.32"
    rounding = ", stochastic rounding of weights" if recipe.stochastic_rounding else ""
    lists = ", some layers by --precision-list" if recipe.precision_list is not None else ""
    return f"{asked} ({kind}{rounding}{lists})"


def is_cpu(device: str) -> bool:
    """Whether `--device` is the CPU, whose memory is that of the host."""
    if device != "auto":
        return device.partition(":")[0] == "cpu"
    import torch

    return not torch.accelerator.is_available()
