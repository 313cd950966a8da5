"""The confusion matrix of a classifier, with examples behind its cells."""

import csv
from collections.abc import Mapping, Sequence

import numpy as np

from drivetrain.report.collect.stored_run import StoredRun
from drivetrain.report.contents import ConfusionMatrix, Example

__all__ = ["confusion_of", "confusion_of_folds"]

# A matrix of 1000 classes would be larger than a page may be, and nobody could read it.
_MOST_CLASSES = 60


def confusion_of(run: StoredRun, *, cells: Mapping[str, list[Example]]) -> ConfusionMatrix | None:
    """The matrix in confusion.csv; of many classes those with the most mistakes, which a sentence says."""
    found = _read(run)
    return None if found is None else _matrix(*found, cells=cells, problems=run.problems)


def confusion_of_folds(
    folds: Sequence[StoredRun], *, cells: Mapping[str, list[Example]], problems: list[str]
) -> ConfusionMatrix | None:
    """The sum of the matrices of the folds that have one: every sample is validated in one fold."""
    found = [matrix for fold in folds if (matrix := fold.part("The confusion matrix", _read)) is not None]
    if not found or any(classes != found[0][0] for classes, _ in found):
        return None
    summed = np.sum([counts for _, counts in found], axis=0).tolist()
    return _matrix(found[0][0], summed, cells=cells, problems=problems)


def _read(run: StoredRun) -> tuple[list[str], list[list[int]]] | None:
    """The classes and the counts in confusion.csv."""
    path = run.directory.path / "confusion.csv"
    if not path.is_file():
        return None
    with path.open(newline="") as file:
        header, *rows = csv.reader(file)
    classes = header[1 : len(rows) + 1]
    counts = [[int(cell) for cell in row[1 : len(rows) + 1]] for row in rows]
    if len(classes) != len(counts) or any(len(row) != len(counts) for row in counts):
        raise ValueError(f"{path} is not a square table")
    return classes, counts


def _matrix(
    classes: Sequence[str],
    counts: Sequence[Sequence[int]],
    *,
    cells: Mapping[str, list[Example]],
    problems: list[str],
) -> ConfusionMatrix:
    kept = _most_mistaken(counts)
    if len(kept) < len(classes):
        problems.append(
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
