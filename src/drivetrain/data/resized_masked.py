"""Images of many sizes brought to one, with their masks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.masked_images import MaskedImages


@dataclass(frozen=True, slots=True)
class ResizedMasked:
    """Every image scaled to `size` x `size`: images bilinear, classes as the nearest pixel has them."""

    masked: MaskedImages
    size_px: int

    def __len__(self) -> int:
        return len(self.masked)

    def name(self, index: int) -> str:
        """What a message calls the image."""
        return self.masked.name(index)

    def size(self, index: int) -> tuple[int, int]:  # noqa: ARG002
        """Height and width."""
        return self.size_px, self.size_px

    def whole(self, index: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """The scaled image and its mask."""
        image, mask = self.masked.whole(index)
        return self._scaled(image, mode="bilinear"), self._scaled(mask, mode="nearest-exact")

    def _scaled(self, values: NDArray[Any], *, mode: str) -> NDArray[Any]:
        import torch  # the rest of a data set opens without it
        from torch.nn.functional import interpolate

        planes = torch.from_numpy(values.astype(np.float32)).permute(2, 0, 1)[None]
        corners = {"align_corners": False} if mode == "bilinear" else {}
        scaled = interpolate(planes, size=(self.size_px, self.size_px), mode=mode, **corners)
        pixels = scaled[0].permute(1, 2, 0).contiguous().numpy()
        return pixels if values.dtype == np.float32 else np.rint(pixels).astype(values.dtype)
