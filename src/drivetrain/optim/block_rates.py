"""Which learning rate each part of a model has: by depth, in the backbone, while only the head trains."""

from collections.abc import Sequence
from fractions import Fraction

from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.heads import head_parameters
from drivetrain.optim.blocks import Block, blocks_of
from drivetrain.optim.part_rates import PartRate
from drivetrain.recipe.fields import default_values, option_name
from drivetrain.recipe.schema import Recipe

__all__ = ["block_factors", "block_rates", "check_block_rates"]

_OPTIONS = ("backbone_rate", "layer_decay", "head_first_epochs")


def check_block_rates(recipe: Recipe, model: nn.Module) -> None:
    """Refuses rates of the backbone where the head alone is trained, and to begin with a frozen head."""
    asked = _asked(recipe)
    if not asked:
        return
    head = set(head_parameters(model))
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    if trained <= head:
        raise BadInputError(
            f"{_written(recipe, asked[0])} has no effect: only the head of the model is trained "
            f"({_layer_of(head)}); use {option_name(asked[0])} {default_values()[asked[0]]:g}"
            f"{', or freeze less' if recipe.freeze else ''}."
        )
    if recipe.head_first_epochs and not trained & head:
        raise BadInputError(
            f"{_written(recipe, 'head_first_epochs')} leaves nothing to train at first, because the head of "
            f"the model is frozen; leave {_layer_of(head)} out of --freeze."
        )


def block_rates(recipe: Recipe, model: nn.Module, *, updates_per_epoch: Fraction) -> dict[str, PartRate]:
    """The rates of the parameters that have one of their own, by name; empty if all train alike."""
    if not _asked(recipe):
        return {}
    head = set(head_parameters(model))
    first = int(recipe.head_first_epochs * updates_per_epoch)
    rates: dict[str, PartRate] = {}
    for block, factor in _factors(recipe, model):
        for name in block.parameters:
            in_head = name in head
            rates[name] = PartRate(
                factor=factor if in_head else factor * recipe.backbone_rate, first=0 if in_head else first
            )
    return {name: rate for name, rate in rates.items() if rate != PartRate()}


def block_factors(recipe: Recipe, model: nn.Module) -> dict[str, float]:
    """By what the learning rate of each block is multiplied, from stem to head; empty if by nothing."""
    if recipe.backbone_rate == recipe.layer_decay == 1.0:
        return {}
    head = set(head_parameters(model))
    found: dict[str, float] = {}
    for block, factor in _factors(recipe, model):
        trained = {name for name in block.parameters if model.get_parameter(name).requires_grad}
        if trained - head:
            found[block.name] = factor * recipe.backbone_rate
        if trained & head:
            # The last block may hold more than the head, such as a norm before it.
            found[block.name if trained <= head else _layer_of(trained & head)] = factor
    return found


def _factors(recipe: Recipe, model: nn.Module) -> list[tuple[Block, float]]:
    """Every block with its factor by depth."""
    blocks = blocks_of(model)
    return [(block, recipe.layer_decay ** (len(blocks) - 1 - index)) for index, block in enumerate(blocks)]


def _asked(recipe: Recipe) -> Sequence[str]:
    return [field for field in _OPTIONS if getattr(recipe, field) != default_values()[field]]


def _written(recipe: Recipe, field: str) -> str:
    return f"{option_name(field)} {getattr(recipe, field)}"


def _layer_of(names: set[str]) -> str:
    name = min(names)
    return name.rpartition(".")[0] or name
