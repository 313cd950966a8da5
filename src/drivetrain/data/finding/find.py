"""What a folder holds: classes, masks, tables of labels, packs or published files."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.folder_files import class_folders, first_names
from drivetrain.data.finding.candidate import Candidate
from drivetrain.data.finding.classes import find_classes
from drivetrain.data.finding.found_data import FoundData
from drivetrain.data.finding.pairs import find_pairs, find_parted_pairs
from drivetrain.data.finding.published import (
    find_cifar10,
    find_cifar100,
    find_isbi2012,
    find_mnist,
    find_pack,
)
from drivetrain.data.finding.refusals import (
    refuse_no_folder,
    refuse_pairs_below,
    refuse_runs,
    refuse_too_little,
    refuse_unrecognised,
)
from drivetrain.data.finding.tables import find_table, repeats_folders, split_in_tables
from drivetrain.data.finding.twins import refuse_twins
from drivetrain.data.label_tables.table import tables_in
from drivetrain.recipe.checks.task import TABLE_FIELDS

__all__ = ["find_data"]

Finder = Callable[[Path], Candidate | None]

_MOST_LEVELS = 3
_PUBLISHED: dict[str, Finder] = {
    "packed": find_pack,
    "isbi2012": find_isbi2012,
    "mnist": find_mnist,
    "cifar10": find_cifar10,
    "cifar100": find_cifar100,
}
_CLASSES, _PAIRS, _TABLE = "image-folder", "mask-folder", "image-table"


def find_data(
    directory: Path, *, dataset: str | None = None, options: Mapping[str, Any] | None = None
) -> FoundData:
    """Recognises what a folder holds, or finds the data of `dataset` in it.

    `options` are those that were typed: one that names a table or a column says that the table is meant.
    """
    try:
        return _found(directory, dataset, {} if options is None else options)
    except OSError as error:
        raise BadInputError(
            f"{error.filename or directory} cannot be read ({error.strerror}); check its permissions, or "
            "name another folder."
        ) from error


def _found(directory: Path, dataset: str | None, typed: Mapping[str, Any]) -> FoundData:
    refuse_no_folder(directory)
    if dataset is None and any(typed.get(field) is not None for field in TABLE_FIELDS):
        dataset = _TABLE
    if dataset is not None:
        return _found_as(directory, dataset, typed)
    for folder in _levels(directory):
        refuse_runs(folder)
        candidates = _candidates(folder, typed)
        if candidates:
            chosen = _only(candidates, folder)
            refuse_too_little(chosen)
            return _below(chosen.found, directory)
    raise refuse_unrecognised(directory)


def _found_as(directory: Path, dataset: str, options: Mapping[str, Any]) -> FoundData:
    """The data of a data set that was named; one that is not recognised is left to its reader."""
    finders = {
        **_PUBLISHED,
        _CLASSES: find_classes,
        _PAIRS: find_pairs,
        _TABLE: lambda folder: find_table(folder, options),
    }
    finder = finders.get(dataset)
    for folder in _levels(directory) if finder is not None else ():
        assert finder is not None
        candidate = _tried(finder, folder, [])
        if candidate is not None:
            return _below(candidate.found, directory)
    return FoundData(
        dataset=dataset, data_dir=directory, sentence=f"{directory} is read as --dataset {dataset}."
    )


def _levels(directory: Path) -> Iterator[Path]:
    """A folder, and the folder that is all it holds, as an unpacked archive often has one."""
    folder = directory
    for _ in range(_MOST_LEVELS):
        yield folder
        inside = class_folders(folder)
        if len(inside) != 1:
            return
        folder = folder / inside[0]


def _below(found: FoundData, directory: Path) -> FoundData:
    if found.data_dir == directory:
        return found
    inside = f"{found.data_dir} is the only folder in {directory} and is used."
    return replace(found, left_out=(inside, *found.left_out))


def _candidates(folder: Path, options: Mapping[str, Any]) -> list[Candidate]:
    """The ways to read a folder; names of published files leave no doubt."""
    published = next(filter(None, (find(folder) for find in _PUBLISHED.values())), None)
    if published is not None:
        return [published]
    problems: list[BadInputError] = []
    pairs, classes = find_parted_pairs(folder), None
    if pairs is None:
        refuse_twins(folder)
        classes = find_classes(folder)
        pairs = _tried(find_pairs, folder, problems)
        if classes is not None and problems:
            classes = _noting(classes, "Files called like masks are read as images of their folders.")
    of_layout = [candidate for candidate in (classes, pairs) if candidate is not None]
    table = _beside(folder, options, of_layout, problems)
    found = [*of_layout, *table]
    if not found and problems:
        refuse_pairs_below(folder)
        raise problems[0]
    return found


def _beside(
    folder: Path, options: Mapping[str, Any], of_layout: list[Candidate], problems: list[BadInputError]
) -> list[Candidate]:
    """The reading by a table, unless it needs a question or says nothing that the folders do not say."""
    split = split_in_tables(folder) if any(each.found.dataset == _CLASSES for each in of_layout) else None
    if of_layout and split is None and repeats_folders(folder):
        return []
    num_problems = len(problems)
    table = _tried(lambda path: find_table(path, options), folder, problems)
    if split is not None and table is None:
        raise BadInputError(
            f"{folder} holds class folders and {split}, which says the split of the images; add --dataset "
            "image-folder to leave it out, or --dataset image-table to read the classes from the table, too."
        )
    if of_layout and len(problems) > num_problems:
        tables = first_names([path.name for path in tables_in(folder)])
        note = f"No classes are taken from {tables}; --dataset image-table does that."
        of_layout[:] = [_noting(candidate, note) for candidate in of_layout]
    return [] if table is None else [table]


def _tried(find: Finder, folder: Path, problems: list[BadInputError]) -> Candidate | None:
    try:
        return find(folder)
    except BadInputError as error:
        problems.append(error)
        return None


def _noting(candidate: Candidate, sentence: str) -> Candidate:
    found = candidate.found
    return replace(candidate, found=replace(found, left_out=(*found.left_out, sentence)))


def _only(candidates: list[Candidate], folder: Path) -> Candidate:
    """Refuses to choose between several ways to read a folder."""
    if len(candidates) > 1:
        ways = [f"--dataset {each.found.dataset} ({each.holding})" for each in candidates]
        raise BadInputError(
            f"{folder} can be read in {len(ways)} ways; add {', '.join(ways[:-1])} or {ways[-1]}."
        )
    return candidates[0]
