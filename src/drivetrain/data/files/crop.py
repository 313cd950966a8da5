"""Crop boxes of image files: the centre for evaluation, a random box for training."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.randomness import draw_uniform, stream_key
from drivetrain.data.files.decode import Box

_ATTEMPTS = 100
_DRAWS_PER_ATTEMPT = 4
_NARROWEST, _WIDEST = 3 / 4, 4 / 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """How an image of any size becomes one of `height` x `width`.

    The short side is scaled to `short_side` and the centre is cropped. If `short_side` is None, the image is
    stretched instead.
    """

    height: int
    width: int
    short_side: int | None

    def centre_box(self, width: int, height: int) -> Box:
        """The part of an image that is kept, in its own pixels."""
        if self.short_side is None:
            return (0, 0, width, height)
        short = min(width, height)
        box_width = self.width * short / self.short_side
        box_height = self.height * short / self.short_side
        # Whole pixels, so that an image that is cropped but not scaled keeps its exact values.
        left, top = int(width - box_width) // 2, int(height - box_height) // 2
        return (left, top, left + box_width, top + box_height)


@dataclass(frozen=True, slots=True, kw_only=True)
class RandomCrop:
    """Random boxes, each a pure function of (seed, pass over the samples, sample, image size).

    A box has a share of the image's area from `smallest_area` to 1 and a width of 3/4 to 4/3 of its height;
    one that does not fit or covers less than `smallest_cover` is drawn again, and after 100 attempts the
    whole image is taken.
    """

    seed: int
    smallest_area: float
    smallest_cover: float = 0.0

    def draws(self, indices: NDArray[np.int64], passes: NDArray[np.int64]) -> NDArray[np.float64]:
        """The numbers behind each sample's boxes, shaped (sample, attempt, draw)."""
        per_sample = _ATTEMPTS * _DRAWS_PER_ATTEMPT
        draws = np.empty((len(indices), per_sample))
        for number in np.unique(passes):
            here = passes == number
            counters = indices[here, np.newaxis] * per_sample + np.arange(per_sample, dtype=np.int64)
            draws[here] = draw_uniform(stream_key(self.seed, "random resized crop", int(number)), counters)
        return draws.reshape(-1, _ATTEMPTS, _DRAWS_PER_ATTEMPT)

    def box(self, width: int, height: int, *, draws: NDArray[np.float64]) -> Box:
        """The first box of one sample's attempts that an image of this size can give."""
        area = (self.smallest_area + (1 - self.smallest_area) * draws[:, 0]) * (width * height)
        aspect = np.exp(np.log(_NARROWEST) + np.log(_WIDEST / _NARROWEST) * draws[:, 1])
        widths = np.rint(np.sqrt(area * aspect))
        heights = np.rint(np.sqrt(area / aspect))
        fits = (widths >= 1) & (heights >= 1) & (widths <= width) & (heights <= height)
        fits &= widths * heights >= self.smallest_cover * width * height
        if not fits.any():
            return (0, 0, width, height)
        first = int(fits.argmax())
        box_width, box_height = int(widths[first]), int(heights[first])
        left = int(draws[first, 2] * (width - box_width + 1))
        top = int(draws[first, 3] * (height - box_height + 1))
        return (left, top, left + box_width, top + box_height)
