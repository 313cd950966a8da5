"""The value of white in 16-bit grey images, of which many cameras fill only 10 or 12 bits."""

from collections.abc import Iterator

import numpy as np
from PIL import Image

from drivetrain.data.files.decode import BadSampleError, has_16_bit_grey, naming_bad_sample
from drivetrain.data.files.image_source import ImageSource

__all__ = ["highest_level", "holds_16_bit_grey"]

_MOST_READ = 64


def holds_16_bit_grey(source: ImageSource) -> bool:
    """Whether any of a few images is 16-bit grey, so that a white level applies."""
    return any(has_16_bit_grey(image) for image in _few_images(source))


def highest_level(source: ImageSource) -> int | None:
    """The largest value of the bits that 16-bit grey images fill, such as 4095.

    None if they fill all 16, are black, or are not all 16-bit grey. Files that cannot be read are left out.
    """
    brightest = 0
    for image in _few_images(source):
        if not has_16_bit_grey(image):
            return None
        brightest = max(brightest, int(np.asarray(image).max(initial=0)))
    level = 2 ** brightest.bit_length() - 1
    return level if 0 < level < np.iinfo(np.uint16).max else None


def _few_images(source: ImageSource) -> Iterator[Image.Image]:
    """At most 64 images, spread evenly over the source."""
    for index in np.unique(np.linspace(0, len(source) - 1, _MOST_READ).astype(int)).tolist():
        try:
            with naming_bad_sample(source.store.name(index)):
                image = source.store.image(index)
                image.load()
        except BadSampleError:
            continue
        yield image
