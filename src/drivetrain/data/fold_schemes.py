"""How images with masks are cut into folds: each once, or as the systems published on ISBI 2012 did it.

The published lists belong to fixed seeds, so these schemes cut the same way whatever `--seed` says.
"""

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.data.folds import cut_folds, fold_size
from drivetrain.recipe.params import FoldScheme

__all__ = ["fold_indices", "held_out_size", "system_a_split"]

Indices = NDArray[np.int64]

_ROTATED_FOLDS = 5
_GRAPHCORE_SEED = 1
_ROTATION_SEEDS = {"nvidia": 0, "habana": 123}
_TRAIN_SHARE = 0.8


def fold_indices(
    scheme: FoldScheme, *, samples: int, folds: int, fold: int, seed: int
) -> tuple[Indices, Indices]:
    """The samples that train and those that validate when fold `fold` does; `seed` is for disjoint folds."""
    fold_size(samples, folds=folds, fold=fold)
    if scheme in _ROTATION_SEEDS:
        return _rotated(scheme, samples=samples, folds=folds, fold=fold)
    if scheme == "graphcore":
        return _complement(_shuffled_folds(samples, folds=folds)[fold], samples=samples)
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
            f"--folds {folds} is impossible with --fold-scheme {scheme}, which always has {_ROTATED_FOLDS}; "
            f"--folds {_ROTATED_FOLDS} works."
        )
    # Of 30 samples this is 5.999..., so the step is 5 where 6 samples validate, as it was published: the
    # folds overlap, and some samples never validate.
    step = int((1.0 - _TRAIN_SHARE) * samples)
    if step == 0:
        raise BadInputError(
            f"--fold-scheme {scheme} cannot cut {samples} samples; --fold-scheme disjoint works."
        )
    order = np.arange(samples, dtype=np.int64)
    np.random.RandomState(_ROTATION_SEEDS[scheme]).shuffle(order)
    turned = np.roll(order, fold * step)
    train = int(_TRAIN_SHARE * samples)
    return turned[:train], turned[train:]


def _complement(held_out: Indices, *, samples: int) -> tuple[Indices, Indices]:
    return np.setdiff1d(np.arange(samples, dtype=np.int64), held_out), held_out.astype(np.int64)
