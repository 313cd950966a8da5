"""The files behind the samples of a source."""

from drivetrain.data.files.image_source import ImageSource
from drivetrain.data.source import Source, SubsetSource

__all__ = ["image_file"]


def image_file(source: Source, index: int) -> str | None:
    """The file of a labelled image, or its name in a pack; None for samples that lie in memory."""
    while isinstance(source, SubsetSource):
        index, source = int(source.indices[index]), source.source
    return source.store.name(index) if isinstance(source, ImageSource) else None
