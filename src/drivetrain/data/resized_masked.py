"""Images of many sizes brought to one, with their masks."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.masks.masked_images import MaskedImages


@dataclass(frozen=True, slots=True)
class ResizedMasked:
    """Every image scaled to `size_px` x `size_px`, its labels as `sample_labels` says."""

    masked: MaskedImages
    size_px: int
    num_classes: int

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
        import torch  # the rest of a data set opens without it
        from torch.nn.functional import interpolate

        from drivetrain.data.dense_planes import SampleMode, sample_labels

        def sample(planes: torch.Tensor, mode: SampleMode) -> torch.Tensor:
            size = (self.size_px, self.size_px)
            if mode == "nearest":
                return interpolate(planes, size=size, mode="nearest-exact")
            return interpolate(planes, size=size, mode="bilinear", align_corners=False)

        image, mask = self.masked.whole(index)
        planes = torch.from_numpy(image.astype(np.float32)).permute(2, 0, 1)[None]
        pixels = sample(planes, "bilinear")[0].permute(1, 2, 0).contiguous().numpy()
        labels = sample_labels(
            torch.from_numpy(mask.copy())[None], num_classes=self.num_classes, sample=sample
        )
        scaled = pixels if image.dtype == np.float32 else np.rint(pixels).astype(image.dtype)
        return scaled, labels[0].numpy()
