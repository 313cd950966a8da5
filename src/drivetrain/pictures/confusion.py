"""Writes the confusion matrix of an evaluation as a table and as a picture."""

import csv
import io
from collections.abc import Sequence

from drivetrain.core.files import write_atomically
from drivetrain.pictures.pyplot import load_pyplot
from drivetrain.store.directory import RunDirectory
from drivetrain.tasks.classification_measure import ClassificationEvaluation

# With more classes the picture, or the numbers in its cells, would be unreadable.
_MOST_DRAWN_CLASSES = 60
_MOST_NUMBERED_CLASSES = 20


def write_confusion(
    directory: RunDirectory,
    evaluation: ClassificationEvaluation,
    *,
    names: Sequence[str],
    stem: str = "confusion",
) -> None:
    """Writes confusion.csv with the accuracy of each class and, for up to 60 classes, confusion.png."""
    write_atomically(directory.path / f"{stem}.csv", _as_csv(evaluation, names).encode())
    if len(names) <= _MOST_DRAWN_CLASSES:
        _draw(directory, evaluation, names, stem)


def _as_csv(evaluation: ClassificationEvaluation, names: Sequence[str]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["true class", *names, "accuracy"])
    for name, row, accuracy in zip(
        names, evaluation.confusion.tolist(), evaluation.class_accuracies, strict=True
    ):
        writer.writerow([name, *row, "" if accuracy is None else round(accuracy, 6)])
    return text.getvalue()


def _draw(
    directory: RunDirectory, evaluation: ClassificationEvaluation, names: Sequence[str], stem: str
) -> None:
    plt = load_pyplot()
    counts = evaluation.confusion
    shares = counts / counts.sum(1, keepdims=True).clip(min=1)
    side = max(4.0, 0.35 * len(names) + 2.0)
    figure, axis = plt.subplots(figsize=(side, side), layout="constrained")
    axis.imshow(shares, cmap="Blues", vmin=0.0, vmax=1.0)
    axis.set_xticks(range(len(names)), names, rotation=90)
    axis.set_yticks(range(len(names)), names)
    axis.set_xlabel("predicted")
    axis.set_ylabel("true")
    axis.set_title(f"accuracy {evaluation.accuracy:.4f} on {evaluation.samples} samples")
    if len(names) <= _MOST_NUMBERED_CLASSES:
        for (row, column), count in ((place, counts[place]) for place in zip(*counts.nonzero(), strict=True)):
            colour = "white" if shares[row, column] > 0.5 else "black"
            axis.text(column, row, str(count), ha="center", va="center", fontsize=8, color=colour)
    figure.savefig(directory.path / f"{stem}.png", dpi=110)
    plt.close(figure)
