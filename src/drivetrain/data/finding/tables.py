"""Recognises images whose classes stand in a table."""

from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.decode import IMAGE_SUFFIXES
from drivetrain.data.files.folder_files import files_below
from drivetrain.data.files.split_folders import split_called
from drivetrain.data.finding.candidate import Candidate, others_left_out
from drivetrain.data.finding.classes import class_candidate
from drivetrain.data.label_tables.columns import find_file_column, find_split_column, split_of_cell
from drivetrain.data.label_tables.named_images import NamedImages
from drivetrain.data.label_tables.rows import TableRequest, find_labelled_images
from drivetrain.data.label_tables.table import LabelTable, read_label_table, tables_in
from drivetrain.data.sources.image_table import stored_table_images
from drivetrain.recipe.checks.task import TABLE_FIELDS

__all__ = ["find_table", "repeats_folders", "split_in_tables"]


def find_table(folder: Path, options: Mapping[str, Any]) -> Candidate | None:
    """The images of a table and their classes; `options` may name the table and its columns."""
    if not tables_in(folder) and options.get("label_table") is None:
        return None
    asked = TableRequest(
        table=options.get("label_table"),
        file_column=options.get("file_column"),
        label_column=options.get("label_column"),
        skips_missing=options.get("on_bad_sample") == "skip",
    )
    found = find_labelled_images(folder, asked=asked)
    if found is None:
        return None
    columns = found.columns
    tables = {path.name for path in tables_in(folder)}
    others = [name for name in found.others if name not in tables]
    names = " and ".join(path.name for path in found.tables)
    split = "" if columns.split is None else f", their split from {columns.split}"
    return class_candidate(
        folder,
        stored_table_images(folder, found),
        dataset="image-table",
        left_out=[*others_left_out(others), *found.left_out],
        source=f"the column {columns.label} of {names}{split}",
        options={field: options[field] for field in TABLE_FIELDS if options.get(field) is not None},
    )


def repeats_folders(folder: Path) -> bool:
    """Whether the tables of a folder only say which folder each image lies in."""
    images = _images_in(folder)
    try:
        return all(_repeats_folders(read_label_table(path), images) for path in tables_in(folder))
    except BadInputError:
        return False


def split_in_tables(folder: Path) -> str | None:
    """The column and the table that part the images, unless these lie in folders of the same splits."""
    images = _images_in(folder)
    for path in tables_in(folder):
        with suppress(BadInputError):
            column = _split_column(read_label_table(path), images)
            if column is not None:
                return f"the column {column} of {path.name}"
    return None


def _images_in(folder: Path) -> NamedImages:
    return NamedImages(name for name in files_below(folder) if name.lower().endswith(IMAGE_SUFFIXES))


def _split_column(table: LabelTable, images: NamedImages) -> str | None:
    file = find_file_column(table, images, asked=None)
    column = None if file is None else find_split_column(table, taken=(file,))
    if file is None or column is None:
        return None
    rows = zip(table.columns[file], table.columns[column], strict=True)
    return None if all(_lies_in_split(images, *row) for row in rows) else column


def _lies_in_split(images: NamedImages, file: str, cell: str) -> bool:
    """Whether the folders of an image say what a cell says; an image that is not there says nothing."""
    split = split_of_cell(cell)
    return all(split in map(split_called, PurePosixPath(name).parts[:-1]) for name in images.matches(file))


def _repeats_folders(table: LabelTable, images: NamedImages) -> bool:
    file = find_file_column(table, images, asked=None)
    if file is None:
        return True
    meant = [images.matches(cell) for cell in table.columns[file]]
    parents = [PurePosixPath(names[0]).parent.name if names else None for names in meant]
    return any(
        all(parent in (None, cell) for parent, cell in zip(parents, cells, strict=True))
        for name, cells in table.columns.items()
        if name != file
    )
