"""Folds: the training samples cut into equal shares, each with its part of every class."""

import warnings
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.core.randomness import stream_key
from drivetrain.data.labels import labels_of
from drivetrain.data.source import DataSplits, SubsetSource, require_labels

__all__ = ["cut_folds", "fold_size", "take_fold"]

_SCIKIT_LEARN_SEEDS = 2**32


def take_fold(splits: DataSplits, *, folds: int, fold: int, seed: int) -> DataSplits:
    """Fold `fold` validates and the others train; what was there for validation is for testing."""
    samples = len(splits.train)
    fold_size(samples, folds=folds, fold=fold)
    is_held_out = np.zeros(samples, dtype=bool)
    labels = labels_of(splits.train)
    require_labels(labels, num_classes=splits.spec.num_classes)
    is_held_out[cut_folds(labels, folds=folds, seed=seed)[fold]] = True
    return replace(
        splits,
        train=SubsetSource(splits.train, np.flatnonzero(~is_held_out)),
        validation=SubsetSource(splits.train, np.flatnonzero(is_held_out)),
        test=splits.test if splits.test is not None else splits.validation,
        warnings=[*splits.warnings, *_notes(labels, folds=folds, names=splits.spec.class_names)],
    )


def fold_size(samples: int, *, folds: int, fold: int) -> int:
    """How many samples fold `fold` takes away from training; the first folds share out a remainder."""
    if folds > samples:
        works = f"--folds {samples} works" if samples > 1 else "one sample cannot be cut"
        raise BadInputError(f"--folds {folds} is more than the {samples} training samples; {works}.")
    return samples // folds + (fold < samples % folds)


def cut_folds(labels: NDArray[np.int64], *, folds: int, seed: int) -> list[NDArray[np.int64]]:
    """The indices of each fold; plain folds where no class can be shared out among them."""
    from sklearn.model_selection import KFold, StratifiedKFold  # 1.5 s, which most runs need not wait for

    stratified = _members(labels).max(initial=0) >= folds
    cutter = (StratifiedKFold if stratified else KFold)(
        folds, shuffle=True, random_state=stream_key(seed, "folds") % _SCIKIT_LEARN_SEEDS
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of scarce classes, which `_notes` calls by their names
        return [held_out for _, held_out in cutter.split(np.zeros(len(labels)), labels)]


def _notes(labels: NDArray[np.int64], *, folds: int, names: tuple[str, ...]) -> list[str]:
    members = _members(labels)
    most = int(members.max(initial=0))
    if 0 < most < folds:
        return [
            f"no class has as many samples as --folds {folds}, so the folds do not share the classes out "
            f"evenly; --folds {max(2, most)} would."
        ]
    scarce = [
        f"{names[label]} ({members[label]})" for label in np.flatnonzero((members > 0) & (members < folds))
    ]
    if not scarce:
        return []
    return [
        f"--folds {folds} is more than the samples of class {', '.join(scarce)}: some folds validate without "
        "it."
    ]


def _members(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Samples per class; none where a sample's label is no class but a picture."""
    return np.bincount(labels) if labels.ndim == 1 else np.empty(0, dtype=np.int64)
