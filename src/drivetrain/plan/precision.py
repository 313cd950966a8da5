"""The precision of a planned training in words, on the device that it names, which need not be here."""

from drivetrain.recipe.schema import Recipe

__all__ = ["compute_type", "is_cpu", "precision_in_words"]


def compute_type(recipe: Recipe, precision: str) -> str:
    """The name of the type of products, of the whole model or of a stage with a precision of its own."""
    if precision == "auto":
        return "float32" if is_cpu(recipe.device) else "bfloat16"
    return "float32" if precision == "32.32" else recipe.half_type


def precision_in_words(recipe: Recipe) -> str:
    """As `--precision` writes it, with the type and what is said about rounding."""
    kind = compute_type(recipe, recipe.precision)
    asked = recipe.precision
    if asked == "auto":
        asked = "32.32" if kind == "float32" else "16.32"
    rounding = ", weights rounded by draws" if recipe.stochastic_rounding else ""
    lists = ", layers by --precision-list" if recipe.precision_list is not None else ""
    return f"{asked} ({kind}{rounding}{lists})"


def is_cpu(device: str) -> bool:
    """Whether `--device` means the host's own memory."""
    if device != "auto":
        return device.partition(":")[0] == "cpu"
    import torch

    return not torch.accelerator.is_available()
