"""Splits data given to `drivetrain.evaluate` in Python: as the run split them if they are its own."""

from dataclasses import replace
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.data.masks.ignored_classes import without_classes
from drivetrain.data.source import DataSplits
from drivetrain.data.sources.arrays import as_source, spec_of
from drivetrain.data.sources.masked_arrays import is_masked, masked_splits_of
from drivetrain.data.splits import split_user_data
from drivetrain.data.training_tiles import UniformSource
from drivetrain.recipe.schema import Recipe
from drivetrain.store.data_files import OwnData, stored_own_data
from drivetrain.store.directory import RunDirectory

__all__ = ["divide_given"]

_WHOLE = ("all", "test")


def divide_given(
    data: Any, *, recipe: Recipe, directory: RunDirectory, split: str | None
) -> tuple[DataSplits, str]:
    """The data as splits, and the name of the split to evaluate; by default the samples not trained on."""
    whole = _undivided(data, recipe=recipe)
    if split in _WHOLE:
        return _named(whole, split), split
    then = stored_own_data(directory)
    divided = _divided_as_trained(recipe, data, then)
    if divided is not None and then is not None:
        return _own(divided, then, split=split or "validation"), split or "validation"
    if then is not None and split != "train" and then.has_validation(whole.train):
        return _named(whole, "validation"), "validation"
    if split is not None:
        raise BadInputError(
            f"data has no split {split!r}: these are not the data that RUN was trained on; split='all' "
            "evaluates all samples."
        )
    return whole, "all"


def _own(divided: DataSplits, then: OwnData, *, split: str) -> DataSplits:
    """The run's own data, after checking that the validation samples were not trained on."""
    if split == "train":
        return divided
    if divided.validation is None and then.validation_samples:
        raise BadInputError(
            f"RUN was validated on {then.validation_samples} samples that are not in data; give those "
            "(validation_data of the training) as data, or use split='train' for the training samples."
        )
    if divided.validation is None:
        raise BadInputError(
            "RUN was trained on all samples of data, without any for validation; use split='train', or give "
            "other data."
        )
    if then.validation is not None and not then.has_validation(divided.validation):
        raise BadInputError(
            "the validation samples of data are not those of the training; give the data that RUN was "
            "trained with, or use split='all' for all samples."
        )
    return divided


def _divided_as_trained(recipe: Recipe, data: Any, then: OwnData | None) -> DataSplits | None:
    """The data split by the rules of the run; None if the run was not trained on them."""
    if then is None:
        return None
    try:
        divided = split_user_data(recipe, train=data)
    except BadInputError:
        # Different data, or too few samples for the rules of the run.
        return None
    return divided if then.has_train(divided.train) else None


def _undivided(data: Any, *, recipe: Recipe) -> DataSplits:
    if is_masked(data):
        splits = masked_splits_of(data)
        # Data without the last classes have fewer of them; what they lack need not be ignored.
        known = [name for name in recipe.ignore_class if name in splits.spec.class_names]
        splits = without_classes(splits, known)
        return DataSplits(train=UniformSource(splits.train), validation=None, test=None, spec=splits.spec)
    source = as_source(data, choice=recipe.input_kind)
    return DataSplits(train=source, validation=None, test=None, spec=spec_of(source))


def _named(whole: DataSplits, split: str) -> DataSplits:
    """All samples as one split of this name."""
    validation = whole.train if split == "validation" else None
    return replace(whole, validation=validation, test=whole.train if split == "test" else None)
