"""Volumes with pages on both sides: trained on and validated on."""

from drivetrain.data.masks.pages import file_of
from drivetrain.data.source import DataSplits, Source
from drivetrain.data.tile_source import masked_of

__all__ = ["warn_of_divided_files"]


def warn_of_divided_files(splits: DataSplits) -> list[str]:
    """What to say of image files with masks whose pages were divided; mostly nothing."""
    if splits.validation is None:
        return []
    divided = sorted(_volumes(splits.train) & _volumes(splits.validation))
    if not divided:
        return []
    return [
        f"Pages of {divided[0]} are trained on and others of it validated on; neighbouring pages look alike, "
        "so new images may come out worse than the validation says. Whole files in train/ and val/ of "
        "--data-dir are kept apart."
    ]


def _volumes(source: Source) -> set[str]:
    masked = masked_of(source)
    files = (file_of(masked.name(index)) for index in range(len(masked)))
    return {file for file in files if file is not None}
