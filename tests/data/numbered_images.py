"""Images whose pixels say where they lie."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

SIZES = ((40, 60), (16, 16), (17, 90), (5, 9), (1, 3))


@dataclass(frozen=True)
class Numbered:
    """Images of any sizes whose pixel (y, x) holds y and x, and a mask that holds y + x."""

    sizes: tuple[tuple[int, int], ...] = SIZES

    def __len__(self) -> int:
        return len(self.sizes)

    def name(self, index: int) -> str:
        return f"image-{index}"

    def size(self, index: int) -> tuple[int, int]:
        return self.sizes[index]

    def whole(self, index: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        rows, columns = np.indices(self.sizes[index], dtype=np.uint8)
        return np.stack([rows, columns], axis=-1), (rows + columns)[:, :, None]
