"""The files that samples come from, by their paths inside the data set's folder."""

from pathlib import Path

import numpy as np

from drivetrain.data.files.image_source import ImageSource
from drivetrain.data.masks.masked_images import MaskedImages
from drivetrain.data.masks.page_images import MaskFolderImages
from drivetrain.data.source import Source, SubsetSource
from drivetrain.data.training_tiles import TileSource, UniformSource, masked_of

__all__ = ["sample_paths"]


def sample_paths(source: Source, *, data_dir: str | None) -> list[str] | None:
    """The path of every sample, and its page where a file has several; None if samples are not image files.

    Paths begin with the class folder, or below `data_dir` for images with masks.
    """
    inner, indices = source, np.arange(len(source), dtype=np.int64)
    while isinstance(inner, SubsetSource):
        indices = inner.indices[indices]
        inner = inner.source
    if isinstance(inner, ImageSource):
        return [inner.store.short_name(index) for index in indices.tolist()]
    if isinstance(inner, UniformSource | TileSource) and isinstance(_inmost(inner.masked), MaskFolderImages):
        masked = masked_of(source)
        return [_below(masked.name(index), data_dir) for index in range(len(masked))]
    return None


def _inmost(masked: MaskedImages) -> MaskedImages:
    """The images below everything that is wrapped around them."""
    while (inner := getattr(masked, "masked", None)) is not None:
        masked = inner
    return masked


def _below(name: str, data_dir: str | None) -> str:
    path = Path(name)
    is_below = data_dir is not None and path.is_relative_to(data_dir)
    return path.relative_to(str(data_dir)).as_posix() if is_below else path.as_posix()
