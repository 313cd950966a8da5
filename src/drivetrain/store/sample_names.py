"""What the samples of a user's files are called, whatever folder they lie in as a whole."""

import os
from functools import cache

from drivetrain.data.files.image_source import ImageSource, ImageStore
from drivetrain.data.source import DataSplits, Source, SubsetSource
from drivetrain.data.tile_source import TileSource, UniformSource

__all__ = ["split_names"]


def split_names(splits: DataSplits, *, data_dir: str) -> dict[str, list[str]]:
    """By split the name of every sample, in order; equal names are the same sample.

    A folder and a pack of it give the same names.
    """
    sources = {"train": splits.train, "validation": splits.validation, "test": splits.test}
    own = {split: source for split, source in sources.items() if source is not None}
    return {
        split: _placed(_names(source, data_dir), place=_place(source, split, splits.train))
        for split, source in own.items()
    }


def _placed(names: list[str], *, place: str) -> list[str]:
    return [place + name for name in names] if place else names


def _place(source: Source, split: str, train: Source) -> str:
    """Class folders of a split of their own may hold the same names as those of training."""
    store = _store(source)
    return "" if store is None or store is _store(train) else f"{split}: "


def _store(source: Source) -> ImageStore | None:
    if isinstance(source, SubsetSource):
        return _store(source.source)
    return source.store if isinstance(source, ImageSource) else None


def _names(source: Source, data_dir: str) -> list[str]:
    if isinstance(source, SubsetSource):
        names = _names(source.source, data_dir)
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
