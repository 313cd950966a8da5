"""What lies beyond the border of an image: the image itself, mirrored."""

import numpy as np
from numpy.typing import NDArray


def mirrored_places(start: int, stop: int, *, length: int) -> NDArray[np.int64]:
    """The pixels at start..stop-1 of a line of `length` that is mirrored at both ends, over and over.

    The pixel at an end is seen twice (... 1 0 | 0 1 2 | 2 1 ...), so that a line of one pixel has a mirror
    image too.
    """
    places = np.arange(start, stop, dtype=np.int64) % (2 * length)
    return np.minimum(places, 2 * length - 1 - places)
