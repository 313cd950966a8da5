"""Reads the class of every image from the tables of a folder, by split, and says what it leaves out."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import count_of
from drivetrain.data.files.decode import IMAGE_SUFFIXES
from drivetrain.data.files.folder_files import files_below, first_names
from drivetrain.data.files.split_folders import split_called, split_folders
from drivetrain.data.label_tables.columns import (
    Columns,
    find_file_column,
    find_label_column,
    find_split_column,
    split_of_cell,
)
from drivetrain.data.label_tables.named_images import NamedImages
from drivetrain.data.label_tables.table import LabelTable, read_label_table, tables_in

__all__ = ["LabelledImages", "TableRequest", "find_labelled_images"]

_TRAIN, _VALIDATION, _TEST = "train", "validation", "test"
_SPLITS = (_TRAIN, _VALIDATION, _TEST)
_HEAD = 2000
Rows = dict[str, dict[str, str]]
"""The class of each image of each split."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableRequest:
    """What a recipe says of the table and its columns; None where it is to be found out."""

    table: str | None = None
    file_column: str | None = None
    label_column: str | None = None
    skips_missing: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledImages:
    """The images of the tables that were read, other files, and sentences about what is left out."""

    rows: Rows
    tables: tuple[Path, ...]
    columns: Columns
    others: tuple[str, ...]
    left_out: tuple[str, ...]


def find_labelled_images(folder: Path, *, asked: TableRequest) -> LabelledImages | None:
    """The images and classes of the tables in a folder; None if no table there names images."""
    paths = _paths(folder, asked)
    if not paths:
        return None
    search = _Search(folder, asked)
    by_split = search.tables_by_split(paths)
    return search.read(by_split) if by_split else None


def _paths(folder: Path, asked: TableRequest) -> list[Path]:
    if asked.table is None:
        return tables_in(folder)
    path = folder / asked.table
    if not path.is_file():
        there = [path.name for path in tables_in(folder)]
        remedy = f"--label-table {there[0]} is there" if there else "put the table into that folder"
        raise BadInputError(f"--label-table {asked.table} is not a file in {folder}; {remedy}.")
    return [path]


@dataclass(slots=True)
class _Search:
    """Reads the tables of one folder."""

    folder: Path
    asked: TableRequest
    left_out: list[str] = field(default_factory=list)
    files: list[str] = field(init=False)
    named: NamedImages = field(init=False)

    def __post_init__(self) -> None:
        self.files = sorted(files_below(self.folder))
        self.named = NamedImages(self._images())

    def _images(self) -> list[str]:
        return [name for name in self.files if _is_image(name)]

    def tables_by_split(self, paths: Sequence[Path]) -> dict[str, Path]:
        """The tables that name images: a single one is `train`, several are told apart by their names."""
        usable, problems = self._usable(paths)
        if not usable and problems:
            raise problems[0]
        if len(usable) < 2:
            return dict(zip((_TRAIN,), usable, strict=False))
        by_split: dict[str, list[Path]] = {}
        for path in usable:
            by_split.setdefault(_split_in(path.stem) or "", []).append(path)
        if len(by_split.get(_TRAIN, [])) != 1 or any(len(by_split.get(split, [])) > 1 for split in _SPLITS):
            names = [path.name for path in usable]
            raise BadInputError(
                f"--data-dir {self.folder} contains several tables that name images: {first_names(names)}; "
                f"add --label-table NAME, such as --label-table {names[0]}."
            )
        self.left_out += [f"{path.name} is not used." for path in by_split.get("", [])]
        return {split: by_split[split][0] for split in _SPLITS if split in by_split}

    def _usable(self, paths: Sequence[Path]) -> tuple[list[Path], list[BadInputError]]:
        usable, problems = [], []
        for path in paths:
            try:
                head = read_label_table(path, most_rows=_HEAD)
                if find_file_column(head, self.named, asked=self.asked.file_column) is not None:
                    usable.append(path)
            except BadInputError as error:
                problems.append(error)
        return usable, problems

    def read(self, by_split: Mapping[str, Path]) -> LabelledImages:
        """The images of all splits."""
        tables = {split: read_label_table(path) for split, path in by_split.items()}
        main = tables.pop(_TRAIN)
        columns = self._columns(main)
        for split in [split for split, table in tables.items() if not columns.are_in(table)]:
            path = tables.pop(split).path
            self.left_out.append(f"{path.name} has no column {columns.label} and is not used.")
        rows = self._rows(main, columns, split=_TRAIN if tables else None)
        for split, table in tables.items():
            rows[split] = self._rows(table, columns, split=split)[split]
        used = [main.path, *(table.path for table in tables.values())]
        self._require_once(rows)
        rows = _arranged(rows, path=main.path)
        self._count_unnamed(rows, used)
        names = {path.name for path in used}
        return LabelledImages(
            rows=rows,
            tables=tuple(used),
            columns=columns,
            others=tuple(name for name in self.files if name not in names and not _is_image(name)),
            left_out=tuple(self.left_out),
        )

    def _columns(self, table: LabelTable) -> Columns:
        file = find_file_column(table, self.named, asked=self.asked.file_column)
        if file is None:
            raise BadInputError(
                f"Less than half of the rows of {table.path} name an image in {self.folder}; correct the "
                "names, or add --file-column NAME if a column has only some of them."
            )
        split = find_split_column(table, taken=(file, self.asked.label_column))
        label = find_label_column(table, taken=(file, split), asked=self.asked.label_column)
        return Columns(file=file, label=label, split=split)

    def _rows(self, table: LabelTable, columns: Columns, *, split: str | None) -> Rows:
        """The classes of a table's images by split: `split`, or what its split column or the folders say."""
        rows: Rows = {_TRAIN: {}} if split is None else {split: {}}
        lines: dict[str, int] = {}
        missing: list[str] = []
        num_unlabelled = 0
        folders = {split: path.name for split, path in split_folders(self.folder).items()}
        for line, cell, label, own in _cells(table, columns, split=split):
            found = self.named.matches(cell, folder=folders.get(own))
            if not found:
                missing.append(f"{cell or 'nothing'} (line {line})")
                continue
            name = _single(found, table, line=line, cell=cell)
            if name in lines:
                raise BadInputError(
                    f"{table.path} names {name} twice, in lines {lines[name]} and {line}; keep one row for "
                    "each image."
                )
            lines[name] = line
            if not label and own == _TEST:
                num_unlabelled += 1
                continue
            if not label:
                raise BadInputError(
                    f"{table.path} line {line} has no {columns.label} for {cell}; add it, or remove the row."
                )
            rows.setdefault(own, {})[name] = label
        self._settle_missing(table, missing)
        if num_unlabelled:
            self.left_out.append(f"{count_of(num_unlabelled, 'test image')} without a label: left out.")
        return rows if split is not None or columns.split is not None else _by_folder(rows[_TRAIN])

    def _settle_missing(self, table: LabelTable, missing: Sequence[str]) -> None:
        if not missing:
            return
        named = first_names([*missing])
        if not self.asked.skips_missing:
            raise BadInputError(
                f"{table.path} names images that are not in {self.folder}: {named}; add the files, remove "
                "the rows, or use --on-bad-sample skip to leave them out."
            )
        self.left_out.append(f"{table.path.name} names images that are not there: {named}.")

    def _require_once(self, rows: Rows) -> None:
        seen: dict[str, str] = {}
        for split, labels in rows.items():
            for name in labels:
                if seen.setdefault(name, split) != split:
                    raise BadInputError(
                        f"The tables in {self.folder} name {name} among the {seen[name]} and the {split} "
                        "images; keep one row for each image."
                    )

    def _count_unnamed(self, rows: Rows, used: Sequence[Path]) -> None:
        named = {name for labels in rows.values() for name in labels}
        rest = [name for name in self._images() if name not in named]
        if rest:
            tables = " and ".join(path.name for path in used)
            self.left_out.append(
                f"{count_of(len(rest), 'image')} not named in {tables}, such as {rest[0]}: left out."
            )


def _is_image(name: str) -> bool:
    return name.lower().endswith(IMAGE_SUFFIXES)


def _cells(table: LabelTable, columns: Columns, *, split: str | None) -> Iterable[tuple[int, str, str, str]]:
    """Line, image, class and split of every row."""
    given = None if columns.split is None else table.columns.get(columns.split)
    if split is not None or given is None:
        splits = [split or _TRAIN] * len(table)
    else:
        splits = [split_of_cell(cell) for cell in given]
    return zip(table.lines, table.columns[columns.file], table.columns[columns.label], splits, strict=True)


def _single(found: Sequence[str], table: LabelTable, *, line: int, cell: str) -> str:
    if len(found) > 1:
        raise BadInputError(
            f"{table.path} line {line} names {cell}, which may be {found[0]} or {found[1]}; write its path "
            "into the table."
        )
    return found[0]


def _split_in(stem: str) -> str | None:
    """The split in the name of a table, such as train.csv or labels_val.csv."""
    words = re.split(r"[^a-z]+", stem.lower())
    return next((split for split in map(split_called, words) if split is not None), None)


def _by_folder(labels: Mapping[str, str]) -> Rows:
    """Splits the images of a table by their folders, if each lies in one of train, val and test."""
    splits = {name: _split_in_path(name) for name in labels}
    if None in splits.values() or _TRAIN not in splits.values():
        return {_TRAIN: dict(labels)}
    rows: Rows = {_TRAIN: {}}
    for name, split in splits.items():
        rows.setdefault(str(split), {})[name] = labels[name]
    return rows


def _split_in_path(name: str) -> str | None:
    folders = PurePosixPath(name).parts[:-1]
    return next((split for split in map(split_called, folders) if split is not None), None)


def _arranged(rows: Rows, *, path: Path) -> Rows:
    """The splits that hold images; test images validate where there are no others for that."""
    kept = {split: labels for split, labels in rows.items() if labels}
    if _TRAIN not in kept:
        raise BadInputError(f"{path} names no images for training; add rows for them.")
    if _TEST in kept and _VALIDATION not in kept:
        kept[_VALIDATION] = kept.pop(_TEST)
    return {split: kept[split] for split in _SPLITS if split in kept}
