"""From stored images and masks to what a segmentation model and its loss see."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from drivetrain.data.dense_normalise import normalise_dense
from drivetrain.data.dense_planes import SampleMode, sample_labels
from drivetrain.data.source import DataSpec


@dataclass(frozen=True, slots=True)
class DensePreprocess:
    """Normalised, bilinear to `image_size`, then `margin` zeros on each side: the model's input canvas.

    Labels go the same way: of two classes bilinear and 1 from one half on, of more the nearest pixel's; the
    padding is class 0. Tiles come with their margin from the source and are neither scaled nor padded.
    """

    spec: DataSpec
    image_size: int | None = None
    margin: int = 0

    @property
    def channels(self) -> int:
        return self.spec.channels

    @property
    def height(self) -> int:
        """Height of the canvas."""
        return self.output_size[0] + 2 * self.margin

    @property
    def width(self) -> int:
        """Width of the canvas."""
        return self.output_size[1] + 2 * self.margin

    @property
    def output_size(self) -> tuple[int, int]:
        """Height and width of the model's output."""
        if self.spec.tile is not None:
            return self.spec.tile, self.spec.tile
        return self.image_size or self.spec.height, self.image_size or self.spec.width

    @property
    def label_size(self) -> tuple[int, int]:
        """Height and width of finished labels."""
        return self.output_size

    @property
    def padding(self) -> int:
        """How many pixels of zeros are on each side of the image on the canvas."""
        return 0 if self.spec.tile is not None else self.margin

    def __call__(self, images: Tensor) -> Tensor:
        """Images (samples, channels, height, width), channels last in memory, on the canvas."""
        pixels = normalise_dense(images, self.spec)
        if self._is_scaled(pixels.shape[2:]):
            pixels = self._scale(pixels, "bilinear")
        return self._padded(pixels) if self.padding else pixels

    def labels(self, labels: Tensor) -> Tensor:
        """Labels (samples, height, width, label channels) in uint8, on the canvas."""
        if self._is_scaled(labels.shape[1:3]):
            labels = sample_labels(labels, num_classes=self.spec.num_classes, sample=self._scale)
        border = self.padding
        return pad(labels, (0, 0, border, border, border, border)) if border else labels

    def finished_labels(self, labels: Tensor) -> Tensor:
        """Labels on the canvas without its margin: in the size of the model's output."""
        if not self.margin:
            return labels
        inside = slice(self.margin, -self.margin)
        return labels[:, inside, inside].contiguous()

    def both(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Stored images and labels, ready for model and loss."""
        return self(images), self.finished_labels(self.labels(labels))

    def _is_scaled(self, size: torch.Size) -> bool:
        return self.spec.tile is None and tuple(size) != self.output_size

    def _scale(self, planes: Tensor, mode: SampleMode) -> Tensor:
        if mode == "nearest":
            return interpolate(planes, size=self.output_size, mode="nearest-exact")
        return interpolate(planes, size=self.output_size, mode="bilinear", align_corners=False)

    def _padded(self, pixels: Tensor) -> Tensor:
        border = self.padding
        return pad(pixels, (border,) * 4).contiguous(memory_format=torch.channels_last)
