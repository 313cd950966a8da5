"""The confusion matrix of a classifier, with examples behind its cells."""

import csv
from collections.abc import Mapping, Sequence

from drivetrain.report.collect.stored_run import StoredRun
from drivetrain.report.contents import ConfusionMatrix, Example

__all__ = ["confusion_of"]

# A matrix of 1000 classes would be larger than a page may be, and nobody could read it.
_MOST_CLASSES = 60


def confusion_of(run: StoredRun, *, cells: Mapping[str, list[Example]]) -> ConfusionMatrix | None:
    """The matrix in confusion.csv; of many classes those with the most mistakes, which a sentence says."""
    path = run.directory.path / "confusion.csv"
    if not path.is_file():
        return None
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    classes = header[1 : len(rows) + 1]
    counts = [[int(cell) for cell in row[1 : len(rows) + 1]] for row in rows]
    if len(classes) != len(counts) or any(len(row) != len(counts) for row in counts):
        raise ValueError(f"{path} is not a square table")
    kept = _most_mistaken(counts)
    if len(kept) < len(classes):
        run.problems.append(
            f"The confusion matrix shows the {len(kept)} of {len(classes)} classes with the most mistakes; "
            "confusion.csv has all."
        )
    place = {index: new for new, index in enumerate(kept)}
    return ConfusionMatrix(
        classes=[classes[index] for index in kept],
        counts=[[counts[row][column] for column in kept] for row in kept],
        examples=_in_new_places(cells, place),
    )


def _most_mistaken(counts: Sequence[Sequence[int]]) -> list[int]:
    """The classes to show, in order: all, or those that are most often wrong as truth or as prediction."""
    every = range(len(counts))
    if len(counts) <= _MOST_CLASSES:
        return list(every)
    predicted = [sum(column) for column in zip(*counts, strict=True)]
    mistakes = [sum(counts[index]) + predicted[index] - 2 * counts[index][index] for index in every]
    return sorted(sorted(every, key=lambda index: -mistakes[index])[:_MOST_CLASSES])


def _in_new_places(cells: Mapping[str, list[Example]], place: Mapping[int, int]) -> dict[str, list[Example]]:
    found = {}
    for cell, examples in cells.items():
        row, column = map(int, cell.split(","))
        if row in place and column in place:
            found[f"{place[row]},{place[column]}"] = examples
    return found
