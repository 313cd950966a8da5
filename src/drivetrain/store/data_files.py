"""Stores which data a run was trained and validated on: file names, or fingerprints of data given in Python.

If files are added to or removed from a folder, the split changes. A continued or evaluated run could then be
validated on images it was trained on; the checks here refuse that or warn.
"""

import hashlib
import os
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np

from drivetrain.catalogue.data_sets import is_folder_of_files
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import read_json, write_json
from drivetrain.data.files.image_source import ImageSource, ImageStore
from drivetrain.data.source import DataSplits, Source, SubsetSource
from drivetrain.data.training_tiles import TileSource, UniformSource
from drivetrain.recipe.schema import Recipe
from drivetrain.store.directory import RunDirectory

__all__ = [
    "DataFiles",
    "OwnData",
    "files_of",
    "fingerprint",
    "own_data_of",
    "require_same_files",
    "require_same_set",
    "split_names",
    "stored_files",
    "stored_own_data",
    "warn_of_other_data",
    "warn_of_seen",
    "write_files",
    "write_own_data",
]

_REMEDY = "restore them, name another --output-dir, or use --overwrite to start afresh."
# Enough to tell data sets apart without reading all of a large one.
_HASHED_SAMPLES = 256


def split_names(splits: DataSplits, *, data_dir: str) -> dict[str, list[str]]:
    """The names of all samples in order, by split, relative to `data_dir`; equal names are the same sample.

    A folder and a pack made from it give the same names.
    """
    sources = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    own = {split: source for split, source in sources.items() if source is not None}
    return {
        split: _placed(_names_in_source(source, data_dir), place=_place(source, split, splits.train))
        for split, source in own.items()
    }


def _placed(names: list[str], *, place: str) -> list[str]:
    return [place + name for name in names] if place else names


def _place(source: Source, split: str, train: Source) -> str:
    """A prefix for the names of a split in a folder of its own, as train/a.png and test/a.png differ."""
    store = _store(source)
    return "" if store is None or store is _store(train) else f"{split}: "


def _store(source: Source) -> ImageStore | None:
    if isinstance(source, SubsetSource):
        return _store(source.source)
    return source.store if isinstance(source, ImageSource) else None


def _names_in_source(source: Source, data_dir: str) -> list[str]:
    if isinstance(source, SubsetSource):
        names = _names_in_source(source.source, data_dir)
        return [names[index] for index in source.indices.tolist()]
    if isinstance(source, ImageSource):
        return [source.store.short_name(index) for index in range(len(source))]
    assert isinstance(source, UniformSource | TileSource), "not a source of files"
    return _seen_from(data_dir, [source.name(index) for index in range(len(source))])


def _seen_from(data_dir: str, paths: list[str]) -> list[str]:
    @cache
    def folder_from_there(folder: str) -> str:
        return os.path.relpath(folder, data_dir)

    split = (os.path.split(path) for path in paths)
    return [os.path.normpath(os.path.join(folder_from_there(folder), file)) for folder, file in split]


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFiles:
    """The names of training and validation samples, in order."""

    train: list[str]
    validation: list[str]

    @property
    def all(self) -> set[str]:
        """The names of all samples, without order."""
        return {*self.train, *self.validation}


def files_of(recipe: Recipe, data: DataSplits) -> DataFiles | None:
    """The files of a request; None if the data are not files of the user."""
    names = _names(recipe, data)
    return None if names is None else DataFiles(train=names["train"], validation=names.get("validation", []))


def stored_files(directory: RunDirectory) -> DataFiles | None:
    """The files that a run stored; None for runs of older versions and for other data."""
    try:
        stored = read_json(directory.data_files)
        return DataFiles(train=list(stored["train"]), validation=list(stored["validation"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(
            f"{directory.data_files} cannot be read ({error}), so the training images are unknown; "
            "--overwrite starts afresh."
        ) from error


def write_files(directory: RunDirectory, files: DataFiles | None) -> None:
    """Stores the files of a run, if its data are files."""
    if files is not None:
        write_json(directory.data_files, {"train": files.train, "validation": files.validation})


def require_same_files(recipe: Recipe, now: DataFiles | None, *, directory: RunDirectory) -> None:
    """Refuses to continue a run if its files, or their split into training and validation, have changed."""
    then = stored_files(directory)
    if now is not None and then is not None and now != then:
        raise BadInputError(
            f"the files in --data-dir {recipe.data_dir} are not those that the run in {directory.path} was "
            f"started with: {_difference(then, now)}; {_REMEDY}"
        )


def require_same_set(recipe: Recipe, now: DataFiles | None, *, directory: RunDirectory) -> None:
    """Refuses a fold whose files differ from those of another fold of the same cross-validation."""
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
    """Refuses to evaluate a run on its training images as if they were new; returns warnings.

    In a folder other than `trained_in`, an equal name may belong to another image, so it is only a warning.
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
            f"{seen[0]} would be evaluated as --split {split}, but RUN was trained on it: the files in "
            f"--data-dir {recipe.data_dir} are not those of the training ({_difference(then, now)}); restore "
            "them, or evaluate a folder of other images with --data-dir DIR --split all."
        )
    return [
        f"{len(seen)} of {len(measured)} images of --split {split} have the names of images that RUN was "
        f"trained on, such as {seen[0]}; if they are the same, the metrics say nothing about new images."
    ]


def _names(recipe: Recipe, data: DataSplits) -> dict[str, list[str]] | None:
    if recipe.data_dir is None or not is_folder_of_files(recipe.dataset):
        return None
    return split_names(data, data_dir=recipe.data_dir)


def _is_same_folder(one: str | None, other: str | None) -> bool:
    return one is not None and other is not None and os.path.realpath(one) == os.path.realpath(other)


def _other_images(now: list[str], then: list[str]) -> str:
    return (
        f"These {len(now)} images are not the {len(then)} validation images of the training, so the metrics "
        "are not comparable; --split all evaluates every image of --data-dir."
    )


def _difference(then: DataFiles, now: DataFiles) -> str:
    """An example of the difference, such as "a.png is gone and b.png is new"."""
    gone, new = sorted(then.all - now.all), sorted(now.all - then.all)
    parts = ([f"{gone[0]} is gone"] if gone else []) + ([f"{new[0]} is new"] if new else [])
    return " and ".join(parts) or "they are split differently into training and validation"


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnData:
    """own_data.json: fingerprints of data given in Python; old runs stored none for validation."""

    train: str
    train_samples: int
    validation: str | None = None
    validation_samples: int | None = None

    def has_train(self, source: Source) -> bool:
        """Whether `source` holds the training samples of the run."""
        return len(source) == self.train_samples and fingerprint(source) == self.train

    def has_validation(self, source: Source) -> bool:
        """Whether `source` holds the validation samples of the run."""
        return len(source) == self.validation_samples and fingerprint(source) == self.validation


def own_data_of(data: DataSplits) -> OwnData:
    """The fingerprints of a run's data."""
    validation = data.validation
    return OwnData(
        train=fingerprint(data.train),
        train_samples=len(data.train),
        validation=None if validation is None else fingerprint(validation),
        validation_samples=None if validation is None else len(validation),
    )


def write_own_data(directory: RunDirectory, own: OwnData | None) -> None:
    """Stores the fingerprints of a run, if its data were given in Python."""
    if own is not None:
        write_json(directory.own_data, asdict(own))


def stored_own_data(directory: RunDirectory) -> OwnData | None:
    """The stored fingerprints; for older runs those in identity.json; None for built-in data sets."""
    try:
        if directory.own_data.is_file():
            return OwnData(**read_json(directory.own_data))
        identity = read_json(directory.identity)
        if "own_data" not in identity:
            return None
        return OwnData(train=identity["own_data"], train_samples=identity["training_samples"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise BadInputError(
            f"RUN {directory.path} does not say which data it was trained on ({error}); evaluate it with "
            "--split all or --split test."
        ) from error


def warn_of_other_data(
    recipe: Recipe, data: DataSplits, *, trained_in: str | None, directory: RunDirectory
) -> list[str]:
    """Refuses to evaluate on a split of data from a user's function that changed since the training.

    With another --data-dir a change is expected, so it is only a warning.
    """
    then = stored_own_data(directory)
    if then is None or then.has_train(data.train):
        return []
    sentence = (
        f"the samples of --dataset {recipe.dataset} are not those that RUN was trained on, so its validation "
        "samples may include training samples of RUN"
    )
    if recipe.data_dir != trained_in:
        return [f"{sentence}."]
    raise BadInputError(f"{sentence}; --split all evaluates every sample.")


def fingerprint(source: Source) -> str:
    """A hash of evenly spaced samples, by which data sets are told apart."""
    indices = np.unique(np.linspace(0, len(source) - 1, _HASHED_SAMPLES).astype(np.int64))
    images, labels = source.fetch(indices)
    return hashlib.sha256(images.tobytes() + labels.tobytes()).hexdigest()[:16]
