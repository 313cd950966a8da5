"""Data that are given in Python to measure a run: the run's own, divided as it divided them, or others."""

from dataclasses import replace
from typing import Any

from drivetrain.core.errors import BadInputError
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
    """The data as splits, and the split to measure; without one asked for, what was not trained on."""
    whole = _undivided(data)
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
            "measures all of them."
        )
    return whole, "all"


def _own(divided: DataSplits, then: OwnData, *, split: str) -> DataSplits:
    """The run's own data, once it is certain that those to validate on were not trained on."""
    if split == "train":
        return divided
    if divided.validation is None and then.validation_samples:
        raise BadInputError(
            f"RUN validated on {then.validation_samples} samples that are not among data; give those "
            "(validation_data of the training) as data, or split='train' measures what it was trained on."
        )
    if divided.validation is None:
        raise BadInputError(
            "RUN was trained on all samples of data and held none out for validation; split='train' measures "
            "them, or give other data."
        )
    if then.validation is not None and not then.has_validation(divided.validation):
        raise BadInputError(
            "the samples that data hold out for validation are not those that validated in the training; "
            "give the data that RUN was trained with, or split='all' measures all of these."
        )
    return divided


def _divided_as_trained(recipe: Recipe, data: Any, then: OwnData | None) -> DataSplits | None:
    """The data by the rules of the run; None where they are not those that it was trained on."""
    if then is None:
        return None
    try:
        divided = split_user_data(recipe, train=data)
    except BadInputError:
        # Others, which cannot be divided so, or too few of them.
        return None
    return divided if then.has_train(divided.train) else None


def _undivided(data: Any) -> DataSplits:
    if is_masked(data):
        splits = masked_splits_of(data)
        return DataSplits(train=UniformSource(splits.train), validation=None, test=None, spec=splits.spec)
    source = as_source(data)
    return DataSplits(train=source, validation=None, test=None, spec=spec_of(source))


def _named(whole: DataSplits, split: str) -> DataSplits:
    """All samples as one split, called so."""
    validation = whole.train if split == "validation" else None
    return replace(whole, validation=validation, test=whole.train if split == "test" else None)
