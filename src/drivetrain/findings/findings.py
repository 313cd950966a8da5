"""The findings of a run and of an evaluation: few, the most important ones first."""

from drivetrain.findings.generalising import guesses_only, known_images, learned_by_heart
from drivetrain.findings.labels import classes_without_predictions, doubtful_label, doubtful_mask
from drivetrain.findings.learning import loss_stays, still_learning, too_short
from drivetrain.findings.record import Measured, TrainingRecord
from drivetrain.recipe.schema import Recipe

__all__ = ["evaluation_findings", "training_findings"]

# More at once are not read, and the first ones often explain the others.
_MOST = 3


def training_findings(
    record: TrainingRecord, measured: Measured | None, *, waits: str | None = None
) -> list[str]:
    """What stands out in a finished training, with its last validation if there was one.

    `waits` says that the device waited for data.
    """
    failed = loss_stays(record)
    if failed is None and measured is not None:
        failed = guesses_only(record, measured)
    if failed is not None:
        # A network that learned nothing says nothing about single classes and labels.
        return _known([known_images(record), failed, waits])
    found = [known_images(record), learned_by_heart(record) or still_learning(record) or too_short(record)]
    if measured is not None:
        found += evaluation_findings(record.recipe, measured)
    return _known([*found, waits])


def evaluation_findings(recipe: Recipe, measured: Measured) -> list[str]:
    """What stands out in the evaluation of a split."""
    return _known(
        [classes_without_predictions(recipe, measured), doubtful_label(measured), doubtful_mask(measured)]
    )


def _known(findings: list[str | None]) -> list[str]:
    return [finding for finding in findings if finding is not None][:_MOST]
