"""What to tell users about their labels and about how to hold out validation samples."""

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.data_sets import held_out_count
from drivetrain.core.errors import BadInputError
from drivetrain.data.files.folder_files import first_names
from drivetrain.data.labels import known_labels_of
from drivetrain.data.source import DataSplits, Source, SubsetSource
from drivetrain.recipe.layout import batch_of
from drivetrain.recipe.schema import Recipe

__all__ = ["options_to_hold_out", "refuse_late_labels", "unvalidated_classes"]

_FRACTIONS = (0.25, 0.3, 0.35, 0.4, 0.45, 0.5)
_MOST_FOLDS = 5
_FRACTION = 0.2


def refuse_late_labels(data: DataSplits, *, outputs: int) -> None:
    """Refuses labels that start above 0, for a model with too few outputs for them."""
    parts = (source for source in (data.train, data.validation) if source is not None)
    known = [labels for labels in map(known_labels_of, parts) if labels is not None]
    smallest = min((int(labels.min()) for labels in known), default=0)
    if smallest > 0:
        largest = max(int(labels.max()) for labels in known)
        raise BadInputError(
            f"The labels of the data go from {smallest} to {largest}, but labels must start at 0; subtract "
            f"{smallest} from each label, so that they can fit the {outputs} outputs of --model."
        )


def unvalidated_classes(
    splits: DataSplits,
    *,
    order: NDArray[np.int64],
    count: int,
    fraction: float,
    takes_folder: bool,
    has_groups: bool = False,
) -> list[str]:
    """Says which classes have no validation sample if the first `count` samples of an order are held out."""
    labels = known_labels_of(splits.train)
    if splits.spec.has_dense_labels or labels is None or labels.ndim > 1:
        return []
    missing = np.setdiff1d(labels, labels[order[:count]])
    if not len(missing):
        return []
    names = first_names([splits.spec.class_names[label] for label in missing])
    ways = [] if has_groups else _options_that_cover(labels[order], above=fraction)
    ways += ["validation images in a val folder beside train"] if takes_folder else []
    return [
        f"No sample of class {names} is held out for validation (--validation-fraction {fraction})"
        + (f"; use {' or '.join(ways)}." if ways else ".")
    ]


def _options_that_cover(labels: NDArray[np.int64], *, above: float) -> list[str]:
    """A larger share that holds out some samples of every class and leaves some, or else folds that do."""
    for share in _FRACTIONS:
        if share > above and _has_all_on_both_sides(labels, fraction=share):
            return [f"--validation-fraction {share}"]
    folds = min(_MOST_FOLDS, int(np.unique(labels, return_counts=True)[1].min()))
    return [f"--folds {folds} --fold 0"] if folds > 1 else []


def _has_all_on_both_sides(labels: NDArray[np.int64], *, fraction: float) -> bool:
    count = held_out_count(len(labels), fraction=fraction)
    return set(labels[:count].tolist()) == set(labels[count:].tolist())


def options_to_hold_out(recipe: Recipe, train: Source) -> str | None:
    """Options that hold out validation samples from the training samples; None if there is just one."""
    samples = len(train)
    if recipe.limit_train_samples is not None and isinstance(train, SubsetSource):
        # Validation samples are held out before --limit-train-samples applies.
        samples = len(train.source)
    if samples < 2:
        return None
    left = min(samples - held_out_count(samples, fraction=_FRACTION), recipe.limit_train_samples or samples)
    is_too_few = recipe.remainder == "trim" and left < batch_of(recipe).global_batch
    return f"--validation-fraction {_FRACTION}" + (" --remainder pad" if is_too_few else "")
