"""Which training samples are held out for validation: their order, and the groups that stay whole."""

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.randomness import draw_permutation, stream_key
from drivetrain.data.files.folder_files import first_names
from drivetrain.data.groups.find_groups import Groups, find_groups, group_names
from drivetrain.data.source import DataSplits, Source
from drivetrain.recipe.schema import Recipe

__all__ = ["groups_of", "held_out_order", "idle_split_warnings"]


def groups_of(splits: DataSplits, recipe: Recipe) -> Groups | None:
    """The groups of the training samples by --group-by; None without."""
    if recipe.group_by is None:
        return None
    return find_groups(splits, group_by=recipe.group_by, data_dir=recipe.data_dir)


def held_out_order(samples: int, *, labels: NDArray[np.int64] | None, seed: int) -> NDArray[np.int64]:
    """A random order whose first samples are held out; with labels, any number of them has all classes.

    A class has its share of the first samples, as near as whole samples allow.
    """
    order = draw_permutation(stream_key(seed, "validation split"), samples)
    if labels is None:
        return order
    by_class = order[np.argsort(labels[order], kind="stable")]
    members = np.bincount(labels)
    first = np.repeat(np.cumsum(members) - members, members)
    # A class's samples are spread evenly from 0 to 1.
    places = np.empty(samples)
    places[by_class] = (np.arange(samples) - first + 0.5) / np.repeat(members, members)
    return order[np.argsort(places[order], kind="stable")]


def idle_split_warnings(splits: DataSplits, *, recipe: Recipe) -> list[str]:
    """What to say of options for the held-out share where no share is held out."""
    there = "no share is held out"
    if splits.validation is not None:
        there = "the data have validation samples of their own"
    remedy = "--validation-fraction 0.2 holds some out."
    warnings = []
    if recipe.split_scheme != "random":
        warnings.append(f"--split-scheme {recipe.split_scheme} has no effect: {there}; {remedy}")
    if recipe.group_by is not None:
        shared = "" if splits.validation is None else _shared_groups(splits, recipe, recipe.group_by)
        warnings.append(f"--group-by {recipe.group_by} has no effect: {there}{shared}; {remedy}")
    return warnings


def _shared_groups(splits: DataSplits, recipe: Recipe, group_by: str) -> str:
    """Which groups the data set's own split divides, in words."""

    def groups_in(source: Source) -> set[str]:
        names = splits.spec.class_names
        return set(group_names(source, group_by=group_by, data_dir=recipe.data_dir, class_names=names))

    assert splits.validation is not None
    shared = sorted(groups_in(splits.train) & groups_in(splits.validation))
    return f", with {first_names(shared)} on both sides" if shared else ", and no group is on both sides"
