"""What --verbosity verbose says before a run starts: what was asked for and where, and the model's layers."""

from torch import nn

from drivetrain.console.reporter import Reporter
from drivetrain.console.tables import text_table
from drivetrain.data.preprocess import Preparation
from drivetrain.models.summary import LayerRow, describe_layers
from drivetrain.recipe.fields import default_values, option_name, plain_values, written_value
from drivetrain.recipe.load import ResolvedRecipe


def show_details(
    resolved: ResolvedRecipe, *, model: nn.Module, preprocess: Preparation, reporter: Reporter
) -> None:
    """Nothing unless the reporter is verbose."""
    if not reporter.is_verbose:
        return
    for line in [*recipe_lines(resolved), *layer_lines(model, preprocess)]:
        reporter.detail(line)


def recipe_lines(resolved: ResolvedRecipe) -> list[str]:
    """The values that are not the defaults, each with its origin."""
    return [
        f"{option_name(name)} {written_value(value)}  ({resolved.origins.get(name, 'derived')})"
        for name, value in plain_values(resolved.recipe).items()
        if value != default_values()[name]
    ]


def layer_lines(model: nn.Module, preprocess: Preparation) -> list[str]:
    """The model's steps in execution order, as a table."""
    rows = describe_layers(model, channels=preprocess.channels, image_size=preprocess.height)
    cells = [("layer", "kind", "output", "parameters", "FLOPs"), *map(_cells, rows)]
    return text_table(cells)


def _cells(row: LayerRow) -> tuple[str, ...]:
    shape = " x ".join(map(str, row.output_shape))
    return (row.name, row.kind, shape, str(row.parameters), str(row.flops))
