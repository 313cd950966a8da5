"""Writes the tables of an evaluation into the run directory: by class, or by image."""

import csv
import io
from collections.abc import Sequence

from drivetrain.core.files import write_atomically
from drivetrain.data.source import Source
from drivetrain.data.training_tiles import masked_of
from drivetrain.pictures.confusion import write_confusion
from drivetrain.store.directory import RunDirectory
from drivetrain.tasks.classification_measure import ClassificationEvaluation
from drivetrain.tasks.segmentation_measure import SegmentationEvaluation
from drivetrain.tasks.task import Evaluation


def write_evaluation(
    directory: RunDirectory,
    evaluation: Evaluation,
    *,
    source: Source,
    names: Sequence[str],
    split: str | None = None,
) -> None:
    """Writes confusion.csv for classification, or images.csv with a row per image for segmentation."""
    mark = "" if split is None else f"-{split}"
    if isinstance(evaluation, ClassificationEvaluation):
        write_confusion(directory, evaluation, names=names, stem=f"confusion{mark}")
    if isinstance(evaluation, SegmentationEvaluation):
        content = _rows_as_csv(evaluation, source=source)
        write_atomically(directory.path / f"images{mark}.csv", content.encode())


def _rows_as_csv(evaluation: SegmentationEvaluation, *, source: Source) -> str:
    text = io.StringIO()
    masked = masked_of(source)
    rows = [{"image": masked.name(i), **row} for i, row in enumerate(evaluation.per_image())]
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    for row in rows:
        writer.writerow({k: round(v, 6) if isinstance(v, float) else v for k, v in row.items()})
    return text.getvalue()
