"""Where tiles lie along one side of an image, and how much each counts where they overlap."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.mirror import mirrored_places

# The halvings of usual models: tiles that lie so many pixels apart are pooled alike where they overlap.
_WIDEST_STEP = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class TileAxis:
    """Tiles of `side` lie evenly from border to border of an image `length` long.

    An image shorter than a tile is mirrored up to one and lies in its middle. A longer one is mirrored at its
    end until all tiles lie a power of two apart.
    """

    length: int
    side: int
    overlap: float

    @property
    def extent(self) -> int:
        """How long the image is with what is mirrored."""
        return self.side + self._steps * self.step

    @property
    def before(self) -> int:
        """How many mirrored pixels of the extent come before the image."""
        return max(0, self.side - self.length) // 2

    @property
    def starts(self) -> list[int]:
        """The first place of each tile in the extent."""
        strides = -(-self._steps // (self.longest_stride // self.step))
        return [self._steps * place // max(strides, 1) * self.step for place in range(strides + 1)]

    @property
    def longest_stride(self) -> int:
        """How far apart the starts of two tiles may lie at most; whatever the image's length."""
        return max(1, int(self.side * (1 - self.overlap)))

    @property
    def step(self) -> int:
        """The power of two that all starts are multiples of; whatever the image's length."""
        return min(_WIDEST_STEP, 1 << (self.longest_stride.bit_length() - 1))

    @property
    def _steps(self) -> int:
        """How many steps the last tile is away from the first."""
        return -(-max(0, self.length - self.side) // self.step)

    def places(self, *, margin: int) -> NDArray[np.int64]:
        """The image's pixel at every place of the extent and of `margin` places around it."""
        return mirrored_places(-self.before - margin, self.extent - self.before + margin, length=self.length)

    def weights(self) -> NDArray[np.float32]:
        """What each tile (row) counts at each of its places (column): above 0, and 1 over all tiles there."""
        starts = np.array(self.starts)
        window = _window(self.side, ramp=self.side - int(np.diff(starts).max(initial=0)))
        places = starts[:, None] + np.arange(self.side)
        total = np.bincount(places.ravel(), weights=np.tile(window, len(starts)))
        return (window / total[places]).astype(np.float32)


def _window(side: int, *, ramp: int) -> NDArray[np.float64]:
    """1 in the middle, falling smoothly towards both ends over `ramp` places, and nowhere 0."""
    if ramp == 0:
        return np.ones(side)
    rising = np.sin(np.pi / 2 * np.minimum((np.arange(side) + 0.5) / ramp, 1)) ** 2
    falling: NDArray[np.float64] = rising * rising[::-1]
    return falling
