"""data_files.json: which of a user's files a run trains on, and which it validates on.

Where a folder changes, the border between both moves: a run that goes on, or is evaluated, would measure what
it was trained on.
"""

import os
from dataclasses import dataclass

from drivetrain.catalogue.data_sets import is_folder_of_files
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import read_json, write_json
from drivetrain.data.source import DataSplits
from drivetrain.recipe.schema import Recipe
from drivetrain.store.directory import RunDirectory
from drivetrain.store.sample_names import split_names

__all__ = [
    "DataFiles",
    "files_of",
    "require_same_files",
    "require_same_set",
    "stored_files",
    "warn_of_seen",
    "write_files",
]

_REMEDY = "put them back, name another --output-dir, or --overwrite to start afresh."


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFiles:
    """The names of training and validation samples, in order."""

    train: list[str]
    validation: list[str]

    @property
    def all(self) -> set[str]:
        """Of both."""
        return {*self.train, *self.validation}


def files_of(recipe: Recipe, data: DataSplits) -> DataFiles | None:
    """The files of a request; None of data that are no user's files."""
    names = _names(recipe, data)
    return None if names is None else DataFiles(train=names["train"], validation=names.get("validation", []))


def stored_files(directory: RunDirectory) -> DataFiles | None:
    """What a run has noted; None where it has not, as older ones."""
    try:
        stored = read_json(directory.data_files)
        return DataFiles(train=list(stored["train"]), validation=list(stored["validation"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(
            f"{directory.data_files} cannot be read ({error}), so nobody knows what was trained on; "
            "--overwrite starts afresh."
        ) from error


def write_files(directory: RunDirectory, files: DataFiles | None) -> None:
    """Notes the files of a run, where its data are some."""
    if files is not None:
        write_json(directory.data_files, {"train": files.train, "validation": files.validation})


def require_same_files(recipe: Recipe, now: DataFiles | None, *, directory: RunDirectory) -> None:
    """Refuses to continue a run on other files than it began with, or on the same ones in other roles."""
    then = stored_files(directory)
    if now is not None and then is not None and now != then:
        raise BadInputError(
            f"the files in --data-dir {recipe.data_dir} are not those that the run in {directory.path} was "
            f"started with: {_difference(then, now)}; {_REMEDY}"
        )


def require_same_set(recipe: Recipe, now: DataFiles | None, *, directory: RunDirectory) -> None:
    """Refuses a fold whose images are not those that another fold of the same job is made of."""
    is_whole = recipe.limit_train_samples is None and recipe.limit_validation_samples is None
    if not is_whole or recipe.on_bad_sample != "error":
        return
    then = stored_files(directory)
    if now is not None and then is not None and now.all != then.all:
        raise BadInputError(
            f"the files in --data-dir {recipe.data_dir} are not those of {directory.path}: "
            f"{_difference(then, now)}; {_REMEDY}"
        )


def warn_of_seen(
    recipe: Recipe, data: DataSplits, *, split: str, trained_in: str | None, directory: RunDirectory
) -> list[str]:
    """Refuses to measure a run on what it was trained on as if that were new; returns what else to say.

    In another folder than `trained_in` an equal name may be another image's: there it is only said.
    """
    then, names = stored_files(directory), _names(recipe, data)
    if then is None or names is None or split == "train":
        return []
    measured = names["train" if split == "all" else split]
    seen = sorted(set(measured) & set(then.train))
    if not seen:
        is_other = split == "validation" and measured != then.validation
        return [_other_images(measured, then.validation)] if is_other else []
    if split != "all" and _is_same_folder(recipe.data_dir, trained_in):
        now = DataFiles(train=names["train"], validation=names.get("validation", []))
        raise BadInputError(
            f"{seen[0]} would be measured as --split {split}, but RUN was trained on it: the files in "
            f"--data-dir {recipe.data_dir} are not those of the training ({_difference(then, now)}); put "
            "them back, or measure a folder of other images by --data-dir DIR --split all."
        )
    return [
        f"{len(seen)} of {len(measured)} images of --split {split} have names of images that RUN was "
        f"trained on, such as {seen[0]}; if they are the same, their metrics say nothing of new images."
    ]


def _names(recipe: Recipe, data: DataSplits) -> dict[str, list[str]] | None:
    if recipe.data_dir is None or not is_folder_of_files(recipe.dataset):
        return None
    return split_names(data, data_dir=recipe.data_dir)


def _is_same_folder(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and os.path.realpath(one) == os.path.realpath(other)


def _other_images(now: list[str], then: list[str]) -> str:
    return (
        f"The images measured here ({len(now)}) are not those that validated in the training ({len(then)}), "
        "so their metrics do not compare; --split all measures every image of --data-dir."
    )


def _difference(then: DataFiles, now: DataFiles) -> str:
    """What tells both apart, by an example."""
    gone, new = sorted(then.all - now.all), sorted(now.all - then.all)
    parts = ([f"{gone[0]} is gone"] if gone else []) + ([f"{new[0]} is new"] if new else [])
    return " and ".join(parts) or "they are divided into training and validation otherwise"
