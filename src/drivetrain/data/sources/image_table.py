"""`--dataset image-table`: image files whose classes stand in a CSV or TSV file beside them."""

from pathlib import Path

import numpy as np

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.data_dir import existing_folder, folder_that_works
from drivetrain.data.files.folder_files import FolderStore, first_names
from drivetrain.data.label_tables.rows import LabelledImages, TableRequest, find_labelled_images
from drivetrain.data.source import DataSplits
from drivetrain.data.sources.stored_images import ImageRequest, StoredImages, open_images
from drivetrain.recipe.schema import Recipe

__all__ = ["find_table_images", "open_image_table", "stored_table_images", "table_request"]

_HOLDING = "images and a CSV file with a header, such as file,label"


def table_request(recipe: Recipe) -> TableRequest:
    """What a recipe says of the table and its columns."""
    return TableRequest(
        table=recipe.label_table,
        file_column=recipe.file_column,
        label_column=recipe.label_column,
        skips_missing=recipe.on_bad_sample == "skip",
    )


def open_image_table(data_dir: str | None, *, asked: TableRequest, request: ImageRequest) -> DataSplits:
    """The images that a table in --data-dir names, each with its class."""
    folder = existing_folder(data_dir, dataset=request.dataset, holding=_HOLDING)
    return open_images(find_table_images(folder, asked=asked), request=request)


def find_table_images(folder: Path, *, asked: TableRequest) -> StoredImages:
    """The images of the tables in a folder; refuses a folder without such a table."""
    found = find_labelled_images(folder, asked=asked)
    if found is None:
        meant = folder_that_works(folder, lambda path: find_labelled_images(path, asked=asked) is not None)
        remedy = f"give a folder that holds {_HOLDING}" if meant is None else f"use --data-dir {meant}"
        raise BadInputError(f"--data-dir {folder} contains no table that names images in it; {remedy}.")
    return stored_table_images(folder, found)


def stored_table_images(folder: Path, found: LabelledImages) -> StoredImages:
    """The images and labels that rows of a table name."""
    class_names = _class_names(found)
    numbers = {name: number for number, name in enumerate(class_names)}
    ordered = {split: sorted(labels) for split, labels in found.rows.items()}
    return StoredImages(
        class_names=class_names,
        stores={split: FolderStore(str(folder), tuple(names)) for split, names in ordered.items()},
        labels={
            split: np.array([numbers[found.rows[split][name]] for name in names], dtype=np.int64)
            for split, names in ordered.items()
        },
        others=found.others,
        warnings=[*found.left_out],
    )


def _class_names(found: LabelledImages) -> tuple[str, ...]:
    """The classes of the training images, numbers in their order; refuses others elsewhere."""
    names = set(found.rows["train"].values())
    unknown = sorted({label for labels in found.rows.values() for label in labels.values()} - names)
    if unknown:
        raise BadInputError(
            f"{found.tables[0]}: the class {first_names(unknown)} has no training images; add some, or "
            "remove its rows."
        )
    if all(map(str.isdecimal, names)):
        return tuple(sorted(names, key=lambda name: (int(name), name)))
    return tuple(sorted(names))
