"""Cross-validation folds: equal parts of the training samples, or the folds of published systems."""

import warnings
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.core.randomness import stream_key
from drivetrain.data.groups.find_groups import Groups
from drivetrain.data.groups.whole_groups import cut_group_folds
from drivetrain.data.labels import labels_of
from drivetrain.data.source import DataSplits, SubsetSource, require_labels
from drivetrain.recipe.params import FoldScheme

__all__ = ["cut_folds", "fold_indices", "fold_size", "held_out_size", "system_a_split", "take_fold"]

_SCIKIT_LEARN_SEEDS = 2**32
Indices = NDArray[np.int64]
_ROTATED_FOLDS = 5
_GRAPHCORE_SEED = 1
_ROTATION_SEEDS = {"nvidia": 0, "habana": 123}
_TRAIN_SHARE = 0.8


def take_fold(
    splits: DataSplits, *, folds: int, fold: int, seed: int, groups: Groups | None = None
) -> DataSplits:
    """Validates on fold `fold` and trains on the others; an existing validation set becomes the test set."""
    samples = len(splits.train)
    fold_size(samples, folds=folds, fold=fold)
    is_held_out = np.zeros(samples, dtype=bool)
    labels = labels_of(splits.train)
    require_labels(labels, num_classes=splits.spec.num_classes)
    if groups is None:
        cut = cut_folds(labels, folds=folds, seed=seed)
    else:
        cut = cut_group_folds(groups, folds=folds, labels=labels, seed=seed)
    is_held_out[cut[fold]] = True
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
        works = f"--folds {samples} works" if samples > 1 else "a single sample cannot be split"
        raise BadInputError(f"--folds {folds} is more than the {samples} training samples; {works}.")
    return samples // folds + (fold < samples % folds)


def cut_folds(labels: NDArray[np.int64], *, folds: int, seed: int) -> list[NDArray[np.int64]]:
    """The indices of each fold: stratified by class, or plain if no class has a sample for every fold."""
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
            f"No class has {folds} samples, so --folds {folds} cannot distribute the classes evenly over the "
            f"folds; --folds {max(2, most)} can."
        ]
    scarce = [
        f"{names[label]} ({members[label]})" for label in np.flatnonzero((members > 0) & (members < folds))
    ]
    if not scarce:
        return []
    return [
        f"--folds {folds} is more than the number of samples of class {', '.join(scarce)}: some folds "
        "validate without it."
    ]


def _members(labels: NDArray[np.int64]) -> NDArray[np.int64]:
    """Samples per class; none where a sample's label is no class but a picture."""
    return np.bincount(labels) if labels.ndim == 1 else np.empty(0, dtype=np.int64)


# How images with masks are cut into folds: each once, or as the systems published on ISBI 2012 did it.
#
# The published lists belong to fixed seeds, so these schemes cut the same way whatever `--seed` says.


def fold_indices(
    scheme: FoldScheme, *, samples: int, folds: int, fold: int, seed: int, groups: Groups | None = None
) -> tuple[Indices, Indices]:
    """The samples that train and those that validate when fold `fold` does; `seed` is for disjoint folds."""
    fold_size(samples, folds=folds, fold=fold)
    if scheme in _ROTATION_SEEDS:
        return _rotated(scheme, samples=samples, folds=folds, fold=fold)
    if scheme == "graphcore":
        return _complement(_shuffled_folds(samples, folds=folds)[fold], samples=samples)
    if groups is not None:
        held_out = cut_group_folds(groups, folds=folds, labels=None, seed=seed)[fold]
        return _complement(held_out, samples=samples)
    # Masks have no class to share out; labels of more than one dimension say so.
    labels = np.zeros((samples, 1), dtype=np.int64)
    return _complement(cut_folds(labels, folds=folds, seed=seed)[fold], samples=samples)


def held_out_size(scheme: FoldScheme, *, samples: int, folds: int, fold: int) -> int:
    """How many samples a fold takes away from training, without cutting."""
    if scheme in _ROTATION_SEEDS:
        return samples - int(_TRAIN_SHARE * samples)
    return fold_size(samples, folds=folds, fold=fold)


def system_a_split(samples: int) -> tuple[Indices, Indices]:
    """Without folds, the first 80 % of ISBI 2012's images train and the last 20 % validate."""
    train = int(_TRAIN_SHARE * samples)
    order = np.arange(samples, dtype=np.int64)
    return order[:train], order[train:]


def _shuffled_folds(samples: int, *, folds: int) -> list[Indices]:
    from sklearn.model_selection import KFold  # slow to import, and most runs have no folds

    cutter = KFold(folds, shuffle=True, random_state=_GRAPHCORE_SEED)
    return [held_out for _, held_out in cutter.split(np.zeros(samples))]


def _rotated(scheme: FoldScheme, *, samples: int, folds: int, fold: int) -> tuple[Indices, Indices]:
    """One shuffled order, turned a step further for each fold; its end validates."""
    if folds != _ROTATED_FOLDS:
        raise BadInputError(
            f"--folds {folds} does not fit --fold-scheme {scheme}, which always uses {_ROTATED_FOLDS} folds; "
            f"--folds {_ROTATED_FOLDS} works."
        )
    # Of 30 samples this is 5.999..., so the step is 5 where 6 samples validate, as it was published: the
    # folds overlap, and some samples never validate.
    step = int((1.0 - _TRAIN_SHARE) * samples)
    if step == 0:
        raise BadInputError(
            f"--fold-scheme {scheme} cannot split {samples} samples into folds; --fold-scheme disjoint works."
        )
    order = np.arange(samples, dtype=np.int64)
    np.random.RandomState(_ROTATION_SEEDS[scheme]).shuffle(order)
    turned = np.roll(order, fold * step)
    train = int(_TRAIN_SHARE * samples)
    return turned[:train], turned[train:]


def _complement(held_out: Indices, *, samples: int) -> tuple[Indices, Indices]:
    return np.setdiff1d(np.arange(samples, dtype=np.int64), held_out), held_out.astype(np.int64)
