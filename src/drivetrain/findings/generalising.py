"""Findings about unseen images: far worse than training images, no better than guessing, not unseen."""

from math import sqrt

import numpy as np

from drivetrain.catalogue.data_sets import is_augmented_by_default
from drivetrain.catalogue.tasks import task_info
from drivetrain.findings.longer import FEW_UPDATES, longer_training
from drivetrain.findings.record import Measured, TrainingRecord

__all__ = ["guesses_only", "known_images", "learned_by_heart"]

# Training scores of single updates say little before this many.
_FEWEST_UPDATES = 20
# A score this much higher in training, with at most half the error: CIFAR-10 at 100 and 95 % is healthy,
# 100 and 85 % is not.
_LEAST_GAP, _LEAST_ERROR_RATIO = 0.1, 2.0
# How many standard errors count as a difference.
_SURE = 2.0
# The usual decays on images: decoupled of SGD and of AdamW, and as an L2 penalty.
_USUAL_DECAY = {"sgd": 0.0005, "adamw": 0.05, "rmsprop": 0.0005}
_USUAL_L2 = 0.0001
# The best validation is early if it lies in this first part of the training, and the last one is worse.
_EARLY, _WORSE = 0.6, 0.01
_PATIENCE = 5
# An average over fewer than this many of its own spans still remembers the random weights of the start.
_LEAST_SPANS = 3.0
_FEWEST_SAMPLES = 20
# Batch norms that keep 0.99 of their running statistics in each update have them after about 500 updates.
_SETTLED_UPDATES = 500
_FAST_STATISTICS = 0.9
# Most models keep this share unless --bn-momentum says otherwise; after five of its spans, less than a
# hundredth of the statistics is left from the start.
_USUAL_STATISTICS, _SETTLED_SPANS = 0.97, 5.0


def learned_by_heart(record: TrainingRecord) -> str | None:
    """Training images that are predicted far better than validation images."""
    if not _is_far_better(record):
        return None
    scores = record.scores()
    return (
        f"Training is far better than validation ({record.metric} {record.at_end(record.metric):.2f} and "
        f"{scores[-1][1]:.2f}): {_remedy(record, scores)}."
    )


def _is_far_better(record: TrainingRecord) -> bool:
    """Whether the training score at the end is far above that of the last validation, beyond chance."""
    scores = record.scores()
    if record.updates < _FEWEST_UPDATES or not scores:
        return False
    train, validation = record.at_end(record.metric), scores[-1][1]
    samples = float(record.validations[-1].get("validation_samples", 1))
    noise = _SURE * sqrt(max(0.0, validation * (1 - validation)) / samples)
    is_far = train - validation >= max(_LEAST_GAP, noise)
    return is_far and 1 - validation >= _LEAST_ERROR_RATIO * (1 - train)


def _remedy(record: TrainingRecord, scores: list[tuple[int, float]]) -> str:
    recipe = record.recipe
    if _averages_the_start(record):
        return _shorter_average(record)
    if _statistics_lag(record):
        return f"{_lagging_words(record)}; try {_for_statistics(record)}"
    if record.image_dtype == "uint8" and not _is_augmented(record):
        return "the training images are learned by heart; try --augment True"
    decay = _more_decay(record)
    if decay is not None:
        return f"the training images are learned by heart; try {decay}"
    best_update, best = max(scores, key=lambda score: score[1])
    if recipe.patience is None and best_update <= _EARLY * record.updates and best - scores[-1][1] > _WORSE:
        return f"the best validation was at update {best_update} already; try --patience {_PATIENCE}"
    if not record.starts_trained:
        return "more images would help most; otherwise start from trained weights with --pretrained"
    return "more images would help most; otherwise train fewer layers with --freeze backbone"


def _is_augmented(record: TrainingRecord) -> bool:
    if record.recipe.augment is None:
        return not _is_dense(record) and is_augmented_by_default(record.recipe.dataset)
    return record.recipe.augment


def _is_dense(record: TrainingRecord) -> bool:
    return task_info(record.task).has_dense_labels


def _more_decay(record: TrainingRecord) -> str | None:
    """The option for the usual weight decay, if there is less than half of it."""
    recipe = record.recipe
    usual = _USUAL_DECAY.get(recipe.optimizer)
    if recipe.optimizer == "lars" or recipe.l2_regularization >= _USUAL_L2 / 2:
        return None
    if usual is None:
        return f"--l2-regularization {_USUAL_L2}"
    return None if recipe.weight_decay >= usual / 2 else f"--weight-decay {usual}"


def guesses_only(record: TrainingRecord, measured: Measured) -> str | None:
    """Validation images that are predicted no better than by one and the same answer.

    A long training that knows its images by heart is not meant.
    """
    found, is_dense = measured.evaluation, _is_dense(record)
    is_far_better = _is_far_better(record)
    if is_far_better and record.updates >= _SETTLED_UPDATES and not _averages_the_start(record):
        return None
    if found.samples < _FEWEST_SAMPLES and not is_dense:
        return None
    there = np.flatnonzero(measured.counts.sum(1))
    if len(there) < 2:
        return None
    recalls = np.diagonal(measured.counts)[there] / measured.counts.sum(1)[there]
    chance = 1 / len(there)
    noise = _SURE * sqrt(chance * (1 - chance) / found.samples)
    # Whoever always gives the same answer finds all of one class: so the mean over classes is what counts.
    if float(recalls.mean()) > chance + (_WORSE if is_dense else noise):
        return None
    what = "pixels" if is_dense else "images"
    lead = (
        f"Validation {what} are predicted no better than by guessing "
        f"({recalls.mean():.0%} right as a mean over {len(there)} classes)"
    )
    if _averages_the_start(record):
        return f"{lead}: {_shorter_average(record)}."
    if is_far_better:
        said = f"{lead}, but training images well: {_lagging_words(record)}"
        return f"{said}; try {_for_statistics(record)}."
    if record.updates < FEW_UPDATES:
        return f"{lead}: {record.updates} updates are few; try {longer_training(record)}."
    if record.chosen:
        return f"{lead}: labels may not belong to their images; `drivetrain data look` shows them together."
    return f"{lead}: the network has hardly learned; try {longer_training(record)}."


def _statistics_lag(record: TrainingRecord) -> bool:
    """Whether running statistics of batch norm had no time to settle, or the training is short anyway."""
    given = record.recipe.bn_momentum
    kept = _USUAL_STATISTICS if given is None else given
    return record.updates < FEW_UPDATES or record.updates * (1 - kept) < _SETTLED_SPANS


def _lagging_words(record: TrainingRecord) -> str:
    few = f"{record.updates} updates are few, and " if record.updates < FEW_UPDATES else ""
    when = "" if few else f" in {record.updates} updates"
    return f"{few}running statistics of batch norm lag behind{when}"


def _for_statistics(record: TrainingRecord) -> str:
    given, longer = record.recipe.bn_momentum, longer_training(record)
    is_fast = given is not None and given <= _FAST_STATISTICS
    return longer if is_fast else f"{longer}, or --bn-momentum {_FAST_STATISTICS}"


def _averages_the_start(record: TrainingRecord) -> bool:
    ema = record.recipe.ema
    return ema is not None and record.updates * (1 - ema) < _LEAST_SPANS


def _shorter_average(record: TrainingRecord) -> str:
    fitting = max(0.0, 1 - 10 / record.updates)
    return (
        f"the average of --ema {record.recipe.ema} still holds weights from the start after "
        f"{record.updates} updates; try --ema {max(0.5, fitting):.3g}"
    )


def known_images(record: TrainingRecord) -> str | None:
    """Validation images that are in the training set too."""
    if record.duplicates is None or not record.duplicates[0]:
        return None
    count, (train, validation) = record.duplicates
    are = "image is" if count == 1 else "images are"
    return (
        f"{count} validation {are} in the training set too, so the scores are too good ({validation} equals "
        f"{train}): remove the copies; `drivetrain data look` counts them."
    )
