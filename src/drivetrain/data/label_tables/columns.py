"""Finds out which column of a table names the images, which one their classes and which one their split."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.folder_files import first_names
from drivetrain.data.files.split_folders import split_called
from drivetrain.data.label_tables.named_images import NamedImages, holds_image_name
from drivetrain.data.label_tables.table import LabelTable

__all__ = ["Columns", "find_file_column", "find_label_column", "find_split_column", "split_of_cell"]

_LOOKED_AT = 200
_LABELS = ("label", "labels", "class", "classes", "class_name", "class_label", "category", "target", "y")
# Where a table has none of those.
_OTHER_LABELS = (
    *("label_name", "label_id", "class_id", "category_name", "category_id"),
    *("diagnosis", "dx", "species", "breed"),
)
_SPLITS = ("split", "set", "subset", "partition", "phase", "usage", "fold", "data_set", "dataset")
_ARE_VALIDATION = ("is_valid", "is_val", "is_validation")
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
_FLAGS = {"0": 0, "1": 1, "0.0": 0, "1.0": 1}
_FEW_CLASSES = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """The columns that are read."""

    file: str
    label: str
    split: str | None = None

    def are_in(self, table: LabelTable) -> bool:
        """Whether a table has the columns of images and classes."""
        return {self.file, self.label} <= table.columns.keys()


def find_file_column(table: LabelTable, images: NamedImages, *, asked: str | None) -> str | None:
    """The column that names the images; None if none does."""
    if asked is not None:
        table.require_column(asked, option="--file-column")
        return asked
    _require_header(table)
    step = max(1, len(table) // _LOOKED_AT)
    meant = {
        name: [tuple(images.matches(cell)) for cell in cells[::step]] for name, cells in table.columns.items()
    }
    likely = {name: found for name, found in meant.items() if sum(map(bool, found)) * 2 > len(found)}
    # Classes and ages that are numbers may be names of images, too, but they have no extension or repeat.
    spelt = {name: found for name, found in likely.items() if holds_image_name(table.columns[name])}
    distinct = {name: found for name, found in likely.items() if len(set(found)) == len(found)}
    candidates = spelt or distinct or likely
    if len({tuple(found) for found in candidates.values()}) > 1:
        names = [*candidates]
        raise BadInputError(
            f"The columns {first_names(names)} of {table.path} all name images; add --file-column NAME, such "
            f"as --file-column {names[0]}."
        )
    return next(iter(candidates), None)


def _require_header(table: LabelTable) -> None:
    if holds_image_name(table.columns):
        raise BadInputError(
            f"{table.path} has no header: its first line is {first_names([*table.columns])}; put a line such "
            "as file,label above it."
        )


def find_split_column(table: LabelTable, *, taken: Sequence[str | None]) -> str | None:
    """The column that says which images are for training, validation or test."""
    for name, cells in table.columns.items():
        if name in taken:
            continue
        if _plain(name) in _SPLITS and all(split_called(cell) is not None for cell in cells):
            return name
        if _plain(name) in _ARE_VALIDATION and all(cell.lower() in _BOOLEANS for cell in cells):
            return name
    return None


def split_of_cell(cell: str) -> str:
    """The split that a cell of the split column means."""
    if cell.lower() in _BOOLEANS:
        return "validation" if _BOOLEANS[cell.lower()] else "train"
    split = split_called(cell)
    assert split is not None, f"{cell} is no split"
    return split


def find_label_column(table: LabelTable, *, taken: Sequence[str | None], asked: str | None) -> str:
    """The column of classes; refuses a table in which several may be meant."""
    if asked is not None:
        table.require_column(asked, option="--label-column")
        if asked in taken:
            raise BadInputError(
                f"--label-column {asked} names the column of {table.path} that names the images or their "
                "split; name the column of their classes."
            )
        return asked
    rest = {name: cells for name, cells in table.columns.items() if name not in taken}
    named = _called(rest, _LABELS) or _called(rest, _OTHER_LABELS)
    if not named:
        _refuse_one_hot(table, rest)
    likely = {name: cells for name, cells in (named or rest).items() if _may_be_classes(cells)}
    if len(likely) > 1 and len({_partition(cells) for cells in likely.values()}) == 1:
        likely = _spelt_out(likely)
    if len(likely) == 1:
        return next(iter(likely))
    raise BadInputError(_which_label(table, [*likely], rest))


def _called(columns: Mapping[str, list[str]], names: Sequence[str]) -> dict[str, list[str]]:
    return {name: cells for name, cells in columns.items() if _plain(name) in names}


def _refuse_one_hot(table: LabelTable, columns: Mapping[str, Sequence[str]]) -> None:
    """Refuses a column for each class with a 1 in the rows of its images."""
    flags = {name: cells for name, cells in columns.items() if set(cells) <= _FLAGS.keys()}
    likely = [name for name, cells in columns.items() if name not in flags and _may_be_classes(cells)]
    sums = {sum(_FLAGS[cell] for cell in row) for row in zip(*flags.values(), strict=True)}
    if len(flags) > 1 and sums == {1} and not likely:
        raise BadInputError(
            f"{table.path} has a column for each class ({first_names([*flags])}) with a 1 in the rows of its "
            "images; write the name of that column into a single column, called label for example."
        )


def _which_label(table: LabelTable, likely: Sequence[str], rest: Mapping[str, Sequence[str]]) -> str:
    if likely:
        return (
            f"Several columns of {table.path} may be the class of an image: {first_names([*likely])}; add "
            f"--label-column NAME, such as --label-column {likely[0]}."
        )
    if not rest:
        return (
            f"{table.path} names images, but has no column of their classes; add one, called label for "
            "example."
        )
    name, cells = next(iter(rest.items()))
    return (
        f"No column of {table.path} looks like the class of an image: {name} has {len(set(cells))} different "
        f"values in {len(cells)} rows; if they are classes nevertheless, add --label-column {name}."
    )


def _may_be_classes(cells: Sequence[str]) -> bool:
    """Whether values repeat as those of classes do; a table of few rows may have one row of each class."""
    known = [cell for cell in cells if cell]
    count = len(set(known))
    if count == len(known) and _are_measured(known):
        return False
    return count > 1 and (count <= _FEW_CLASSES or count * 2 <= len(known))


def _are_measured(cells: Sequence[str]) -> bool:
    """Whether values are numbers with decimals."""
    try:
        return not all(float(cell).is_integer() for cell in cells)
    except (ValueError, OverflowError):
        return False


def _partition(cells: Sequence[str]) -> tuple[int, ...]:
    """Which rows are alike, whatever the values are called."""
    numbers: dict[str, int] = {}
    return tuple(numbers.setdefault(cell, len(numbers)) for cell in cells)


def _spelt_out(columns: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """Of columns that mean the same classes, one that names them in words rather than in numbers."""
    words = [name for name, cells in columns.items() if not all(map(str.isdecimal, cells))]
    name = next(iter(words or columns))
    return {name: columns[name]}


def _plain(name: str) -> str:
    return name.lower().replace(" ", "_").replace("-", "_")
