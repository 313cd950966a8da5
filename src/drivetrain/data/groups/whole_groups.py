"""Holds out whole groups, or cuts them into folds, so that each has about its share of the samples."""

import warnings

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.core.randomness import draw_permutation, stream_key
from drivetrain.data.groups.find_groups import Groups

__all__ = ["cut_group_folds", "hold_out_groups"]

_SCIKIT_LEARN_SEEDS = 2**32
Indices = NDArray[np.int64]


def hold_out_groups(groups: Groups, *, count: int, labels: Indices | None, seed: int) -> NDArray[np.bool_]:
    """Which samples are held out: groups in a random order, as long as they bring `count` nearer.

    With `labels`, the count of every class is brought nearer to its share; large groups come first then, so
    that small ones make up for what they left. A group remains on either side.
    """
    members = _members(groups, labels)
    totals = members.sum(0)
    targets = totals * (count / len(groups.of_samples))
    order = draw_permutation(stream_key(seed, "validation split"), len(groups))
    if labels is not None:
        order = order[np.argsort(-members.sum(1)[order], kind="stable")]

    def error(held: NDArray[np.float64]) -> float:
        return float(np.square((held - targets) / np.maximum(totals, 1)).sum())

    held = np.zeros_like(targets)
    chosen: list[int] = []
    for group in order.tolist():
        if len(chosen) < len(groups) - 1 and error(held + members[group]) < error(held):
            held = held + members[group]
            chosen.append(group)
    if not chosen:
        chosen = [min(order.tolist(), key=lambda group: error(members[group]))]
    return np.isin(groups.of_samples, chosen)


def cut_group_folds(groups: Groups, *, folds: int, labels: Indices | None, seed: int) -> list[Indices]:
    """The indices of each fold: whole groups, with the classes distributed as evenly as they allow."""
    from sklearn.model_selection import GroupKFold, StratifiedGroupKFold  # slow to import

    if folds > len(groups):
        raise BadInputError(
            f"--folds {folds} is more than the {len(groups)} groups of --group-by; --folds {len(groups)} "
            "works."
        )
    samples = len(groups.of_samples)
    is_scarce = labels is not None and int(np.bincount(labels).max(initial=0)) < folds
    classes = np.zeros(samples, dtype=np.int64) if labels is None or is_scarce else labels
    cutter = StratifiedGroupKFold(
        folds, shuffle=True, random_state=stream_key(seed, "folds") % _SCIKIT_LEARN_SEEDS
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of scarce classes, which `folds.py` names
        cut = [held for _, held in cutter.split(np.zeros(samples), classes, groups.of_samples)]
    if all(len(held) for held in cut):
        return cut
    # The stratified cut may leave a fold empty; this one gives every fold a group.
    plain = GroupKFold(folds).split(np.zeros(samples), classes, groups.of_samples)
    return [held for _, held in plain]


def _members(groups: Groups, labels: Indices | None) -> NDArray[np.float64]:
    """Samples of each group (row), by class (column) where labels are given."""
    classes = np.zeros(len(groups.of_samples), dtype=np.int64) if labels is None else labels
    width = int(classes.max()) + 1
    cells = groups.of_samples * width + classes
    counts = np.bincount(cells, minlength=len(groups) * width)
    return counts.reshape(len(groups), width).astype(np.float64)
