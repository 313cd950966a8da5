"""How to come by validation samples where a data set has none, in options that work for the data at hand."""

from drivetrain.catalogue.data_sets import held_out_count
from drivetrain.data.source import Source, SubsetSource
from drivetrain.recipe.batch import batch_of
from drivetrain.recipe.schema import Recipe

__all__ = ["options_to_hold_out"]

_FRACTION = 0.2


def options_to_hold_out(recipe: Recipe, train: Source) -> str | None:
    """The options that hold some of the training samples out; None where a single one cannot be divided."""
    samples = len(train)
    if recipe.limit_train_samples is not None and isinstance(train, SubsetSource):
        # The limit comes after the division.
        samples = len(train.source)
    if samples < 2:
        return None
    left = min(samples - held_out_count(samples, fraction=_FRACTION), recipe.limit_train_samples or samples)
    is_too_few = recipe.remainder == "trim" and left < batch_of(recipe).global_batch
    return f"--validation-fraction {_FRACTION}" + (" --remainder pad" if is_too_few else "")
