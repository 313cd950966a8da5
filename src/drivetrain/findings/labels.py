"""Findings about labels: classes that are never predicted, labels and masks that may be wrong."""

from pathlib import Path

import numpy as np

from drivetrain.data.files.folder_files import first_names
from drivetrain.data.sample_names import image_file
from drivetrain.data.training_tiles import masked_of
from drivetrain.findings.record import Measured
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.classification_measure import ClassificationEvaluation, Guesses
from drivetrain.tasks.segmentation_measure import SegmentationEvaluation

__all__ = ["classes_without_predictions", "doubtful_label", "doubtful_mask"]

# A class of one or two samples may well be missed.
_FEWEST_OF_CLASS = 3
_MOST_NAMED = 3
# More than this between the largest and a class that is never predicted counts as unbalanced.
_UNBALANCED = 4.0
# A label is doubtful if a prediction against it is as sure as half of those of the same class that agree with
# their labels, and predictions that sure are hardly ever wrong. Bounds from the network's own probabilities
# by class are those of confident learning (Northcutt and others, 2021): a fixed one would not do, as smoothed
# targets and long trainings shift all probabilities. Below the last one nothing is a contradiction.
_SUREST, _LEAST_SURE = 0.5, 0.8
_LEAST_RIGHT = 0.95
_FEWEST_SURE = 10
# A mask is doubtful if half of the images reach the first score and it stays this far below.
_USUAL_SCORE, _FAR_BELOW = 0.6, 0.5
_FEWEST_MASKS = 5
_SHEET = "predictions/validation.png"


def classes_without_predictions(recipe: Recipe, measured: Measured) -> str | None:
    """Classes that the split has and the model never names."""
    predicted = measured.counts.sum(0)
    missing = np.flatnonzero((measured.present >= _FEWEST_OF_CLASS) & (predicted == 0))
    if not len(missing):
        return None
    names = first_names([measured.class_names[index] for index in missing], most=_MOST_NAMED)
    true = measured.counts.sum(1)
    ratio = float(true.max() / true[missing].max())
    lead = f"{'Class' if len(missing) == 1 else 'Classes'} never predicted: {names}"
    if ratio > _UNBALANCED and not recipe.class_weights:
        return f"{lead}, and the largest class is {ratio:.0f} times as large; try --class-weights balanced."
    return f"{lead}; more samples of {'it' if len(missing) == 1 else 'them'} or a larger --num-epochs help."


def doubtful_label(measured: Measured) -> str | None:
    """The surest prediction that contradicts a label, if predictions that sure are hardly ever wrong."""
    found = measured.evaluation
    guesses = found.guesses if isinstance(found, ClassificationEvaluation) else None
    if guesses is None or len(guesses.labels) != len(measured.source):
        return None
    doubtful = _doubtful(guesses)
    if not doubtful:
        return None
    name = image_file(measured.source, doubtful[0])
    if name is None:
        return None
    classes, place = measured.class_names, doubtful[0]
    several = (
        f"{len(doubtful)} labels may be wrong; the surest" if len(doubtful) > 1 else "A label may be wrong"
    )
    see = f"; {_SHEET} shows the surest mistakes" if measured.split == "validation" else ""
    return (
        f"{several}: {name} is predicted as {classes[guesses.classes[place]]} with "
        f"{guesses.confidences[place]:.0%}, but labelled {classes[guesses.labels[place]]}{see}."
    )


def _doubtful(guesses: Guesses) -> list[int]:
    """Samples whose labels are doubtful, the surest contradiction first."""
    is_right = guesses.classes == guesses.labels
    is_sure = np.zeros(len(is_right), dtype=bool)
    for predicted in np.unique(guesses.classes[is_right]):
        is_own = guesses.classes == predicted
        bound = np.quantile(guesses.confidences[is_own & is_right], _SUREST)
        is_sure |= is_own & (guesses.confidences >= max(float(bound), _LEAST_SURE))
    wrong = np.flatnonzero(is_sure & ~is_right)
    sure = int(is_sure.sum())
    if sure < _FEWEST_SURE or len(wrong) > max(1.0, (1 - _LEAST_RIGHT) * sure):
        return []
    return [int(index) for index in wrong[np.argsort(-guesses.confidences[wrong], kind="stable")]]


def doubtful_mask(measured: Measured) -> str | None:
    """The image with the lowest score, if it is far below the usual ones."""
    found = measured.evaluation
    if not isinstance(found, SegmentationEvaluation) or found.samples < _FEWEST_MASKS:
        return None
    scores = found.foreground_scores()
    usual, place = float(np.median(scores)), int(np.argmin(scores))
    if usual < _USUAL_SCORE or scores[place] > usual - _FAR_BELOW:
        return None
    name = Path(masked_of(measured.source).name(place)).name
    see = f"; {_SHEET} shows it" if measured.split == "validation" else "; --overlay draws it"
    return (
        f"A mask may be wrong: {name} reaches a Dice of {scores[place]:.2f} where half of the images "
        f"reach {usual:.2f}{see}."
    )
