"""Writes the weights of a run alone, under its own names or under those of another library."""

from pathlib import Path
from typing import Literal, get_args

from safetensors.torch import save_file
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.weights.resnet_names import to_torchvision
from drivetrain.models.zoo.resnet import ResNet
from drivetrain.recipe.schema import Recipe

__all__ = ["NAMINGS", "Naming", "named_weights", "write_weights"]

Naming = Literal["own", "torchvision", "timm"]
NAMINGS: tuple[Naming, ...] = get_args(Naming)


def named_weights(recipe: Recipe, model: nn.Module, *, naming: Naming) -> dict[str, Tensor]:
    """The tensors of a run's model under the names asked for; raises if the model has none there.

    A library's model has the library's names as its own.
    """
    if naming == "own" or recipe.model.startswith(f"{naming}/"):
        return {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    if not isinstance(model, ResNet):
        raise BadInputError(
            f"--names {naming} is for resnet18 to resnet152 and for models of {naming}, and this run's model "
            f"is {recipe.model}; --names own works."
        )
    return to_torchvision(model)


def write_weights(tensors: dict[str, Tensor], path: Path) -> None:
    """Writes tensors as safetensors; the file says that they are torch's, which transformers asks for."""
    save_file({name: value.clone().contiguous() for name, value in tensors.items()}, path, {"format": "pt"})
