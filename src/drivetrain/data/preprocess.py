"""Turns stored samples into the inputs of model and loss: normalises, resizes, pads, on host or device."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, Protocol

import torch
from torch import Tensor
from torch.nn.functional import interpolate, pad

from drivetrain.catalogue.models import output_margin_of
from drivetrain.data.source import DataSpec
from drivetrain.recipe.schema import Recipe

UINT8_SCALE = 1 / 255
# In levels of 255. Only images of one value, whose deviation is a rounding error, lie below it: an image in
# which a single value differs by one level deviates far more.
_LEAST_DEVIATION = 1e-4
SampleMode = Literal["bilinear", "nearest"]


def sum_per_image(images: Tensor) -> Tensor:
    """The sum over channels, height and width of each image, for channels-last memory."""
    # Row by row first: with only one image, torch would split one long sum among threads, and the order of
    # additions (and so the last bits) would depend on the batch size.
    rows = images.permute(0, 2, 3, 1).flatten(2)
    return rows.sum(2).sum(1)


class Preparation(Protocol):
    """Turns stored samples into model inputs and labels; `height` and `width` are the model input's."""

    @property
    def spec(self) -> DataSpec: ...

    @property
    def channels(self) -> int: ...

    @property
    def height(self) -> int: ...

    @property
    def width(self) -> int: ...

    @property
    def picture_size(self) -> tuple[int, int]:
        """Height and width of the picture in the model's input, without a margin around it."""
        ...

    @property
    def label_size(self) -> tuple[int, int]:
        """Height and width of the labels that a loss compares the model's output with."""
        ...

    def __call__(self, images: Tensor) -> Tensor:
        """Turns stored images into model inputs."""
        ...

    def both(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Stored images and labels, ready for model and loss."""
        ...


@dataclass(frozen=True, slots=True)
class Preprocess:
    """Converts images to float32, resizes them bilinearly to `image_size` and normalises them.

    Only uint8 data are normalised: "unit" multiplies by 1/255, "standardise" brings each image to mean 0
    and standard deviation 1, "symmetric" maps to [-1, 1], "imagenet" and "per-channel" subtract a mean from
    each channel and divide it by a deviation.
    """

    spec: DataSpec
    image_size: int | None = None

    @property
    def channels(self) -> int:
        return self.spec.channels

    @property
    def height(self) -> int:
        return self.image_size or self.spec.height

    @property
    def width(self) -> int:
        return self.image_size or self.spec.width

    @property
    def picture_size(self) -> tuple[int, int]:
        return self.height, self.width

    @property
    def label_size(self) -> tuple[int, int]:
        return 1, 1

    def both(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Prepares the images; labels of one class per image stay as they are."""
        return self(images), labels

    def __call__(self, images: Tensor) -> Tensor:
        """Prepares images (samples, channels, height, width) in channels-last memory."""
        pixels = self._resized(images)
        if self.spec.image_dtype != "uint8":
            return pixels
        if self.spec.normalisation == "standardise":
            return _standardised(pixels)
        if self.spec.normalisation in ("imagenet", "per-channel"):
            return _per_channel(pixels, *self.spec.channel_values)
        if self.spec.normalisation == "symmetric":
            return _symmetric(pixels)
        # In place only on a copy: float32 images of the right size arrive here uncopied.
        return pixels.mul_(UINT8_SCALE) if pixels is not images else pixels * UINT8_SCALE

    def _resized(self, images: Tensor) -> Tensor:
        pixels = images.to(torch.float32)
        size = (self.height, self.width)
        if size == tuple(pixels.shape[2:]):
            return pixels
        return interpolate(pixels, size=size, mode="bilinear", align_corners=False, antialias=False)


def channels_last_view(images: Tensor) -> Tensor:
    """(samples, height, width, channels) seen as (samples, channels, height, width), without a copy."""
    return images.permute(0, 3, 1, 2)


def _standardised(pixels: Tensor) -> Tensor:
    """Brings each image to mean 0 and standard deviation 1; an image of one value becomes 0."""
    values = pixels[0].numel()
    centred = pixels - (sum_per_image(pixels) / values)[:, None, None, None]
    deviation = (sum_per_image(centred * centred) / values).sqrt()
    scale = torch.where(deviation > _LEAST_DEVIATION, 1 / deviation, 0)
    return centred.mul_(scale[:, None, None, None])


def _symmetric(pixels: Tensor) -> Tensor:
    return pixels / 127.5 - 1


def _per_channel(pixels: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    # Whole rows of pixels at a time: a constant of three values would make every inner loop three steps long.
    rows = pixels.permute(0, 2, 3, 1).flatten(2)
    offset, scale = _row(pixels.shape[3], mean, std, pixels.device)
    normalised = torch.addcmul(offset, rows, scale)
    return channels_last_view(normalised.view(*rows.shape[:2], -1, pixels.shape[1]))


@lru_cache(maxsize=8)
def _row(
    width: int, mean: tuple[float, ...], std: tuple[float, ...], device: torch.device
) -> tuple[Tensor, Tensor]:
    """Offset and scale of a row of pixels: normalised = offset + scale x pixels."""
    # Computed in float64 and rounded to float32 once.
    means, deviations = (torch.tensor(values, dtype=torch.float64).repeat(width) for values in (mean, std))
    offset, scale = -means / deviations, UINT8_SCALE / deviations
    return offset.to(device, torch.float32), scale.to(device, torch.float32)


def normalise_dense(images: Tensor, spec: DataSpec) -> Tensor:
    """Normalises uint8 images with masks; keeps floating values."""
    return from_symmetric(to_symmetric(images, spec), spec)


def to_symmetric(images: Tensor, spec: DataSpec) -> Tensor:
    """Maps uint8 to float32 in [-1, 1], the range in which images with masks are augmented."""
    pixels = images.to(torch.float32)
    return _symmetric(pixels) if spec.image_dtype == "uint8" else pixels


def from_symmetric(pixels: Tensor, spec: DataSpec) -> Tensor:
    """Normalises pixels in [-1, 1] that were uint8."""
    if spec.image_dtype != "uint8" or spec.normalisation == "symmetric":
        return pixels
    if spec.normalisation == "unit":
        return (pixels + 1) / 2
    offset, scale = _planes(*spec.channel_values, pixels.device)
    return pixels * scale + offset


# Kept on the device: the capture of an update (CUDA graph) cannot copy values from the host.
@lru_cache(maxsize=8)
def _planes(mean: tuple[float, ...], std: tuple[float, ...], device: torch.device) -> tuple[Tensor, Tensor]:
    """Offset and scale of channels: normalised = offset + scale x pixels in [-1, 1]."""
    means, deviations = (torch.tensor(values, dtype=torch.float64) for values in (mean, std))
    offset, scale = (0.5 - means) / deviations, 0.5 / deviations
    return _per_plane(offset, device), _per_plane(scale, device)


@lru_cache(maxsize=8)
def _margin_values(empty: tuple[float, ...], device: torch.device) -> Tensor:
    return _per_plane(torch.tensor(empty), device)


def _per_plane(values: Tensor, device: torch.device) -> Tensor:
    return values.to(device, torch.float32)[:, None, None]


def empty_pixel(spec: DataSpec) -> tuple[float, ...]:
    """The value from -1 to 1 of each channel that `from_symmetric` makes 0."""
    if spec.image_dtype != "uint8" or spec.normalisation == "symmetric":
        return (0.0,) * spec.channels
    if spec.normalisation == "unit":
        return (-1.0,) * spec.channels
    return tuple(2 * mean - 1 for mean in spec.channel_values[0])


class DenseSampler(Protocol):
    """Resamples float32 planes (samples, planes, height, width), of images and of labels alike."""

    def __call__(self, planes: Tensor, mode: SampleMode) -> Tensor: ...


def sample_labels(labels: Tensor, *, num_classes: int, sample: DenseSampler) -> Tensor:
    """Resamples uint8 labels (samples, height, width, label channels).

    With two classes, labels are interpolated bilinearly and values of 0.5 or more become class 1. With more
    values (`DataSpec.label_values`), the nearest pixel is taken. Border-weight codes (second channel) are
    interpolated and rounded.
    """
    planes = labels.permute(0, 3, 1, 2).to(torch.float32)
    if num_classes > 2:
        classes = sample(planes[:, :1], "nearest")
    else:
        classes = sample(planes[:, :1], "bilinear") >= 0.5
    parts = [classes.to(torch.uint8)]
    if planes.shape[1] > 1:
        parts.append(sample(planes[:, 1:], "bilinear").round().clamp(0, 255).to(torch.uint8))
    return torch.cat(parts, dim=1).permute(0, 2, 3, 1).contiguous()


@dataclass(frozen=True, slots=True)
class DensePreprocess:
    """Resizes images to `image_size`, pads each side with `margin` pixels (the canvas) and normalises them.

    Pixels are from -1 to 1 on the canvas, and 0 in its margin once `finished` has normalised them.
    Labels are resized (see `sample_labels`) and padded with class 0. Tiles come with their margin from the
    source and are neither resized nor padded.
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
    def picture_size(self) -> tuple[int, int]:
        """Height and width of the part of the canvas that the model's output covers."""
        return self.output_size

    @property
    def label_size(self) -> tuple[int, int]:
        """Height and width of finished labels."""
        return self.output_size

    @property
    def padding(self) -> int:
        """Pixels of zeros added on each side of the image."""
        return 0 if self.spec.tile is not None else self.margin

    def __call__(self, images: Tensor) -> Tensor:
        """Images (samples, channels, height, width), channels last in memory, as the model reads them."""
        return self.finished(self.on_canvas(images))

    def finished(self, pixels: Tensor) -> Tensor:
        """Normalises images on the canvas."""
        return from_symmetric(pixels, self.spec)

    def on_canvas(self, images: Tensor) -> Tensor:
        """Puts images on the canvas, where they are augmented."""
        pixels = to_symmetric(images, self.spec)
        if self._is_scaled(pixels.shape[2:]):
            pixels = self._scale(pixels, "bilinear")
        return self._padded(pixels) if self.padding else pixels

    def labels(self, labels: Tensor) -> Tensor:
        """Puts uint8 labels (samples, height, width, label channels) on the canvas."""
        if self._is_scaled(labels.shape[1:3]):
            labels = sample_labels(labels, num_classes=self.spec.label_values, sample=self._scale)
        border = self.padding
        return pad(labels, (0, 0, border, border, border, border)) if border else labels

    def finished_labels(self, labels: Tensor) -> Tensor:
        """Crops the margin off labels on the canvas, to the size of the model's output."""
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
            # torch's mode "nearest" ignores pixel centres and would shift the labels against the images.
            return interpolate(planes, size=self.output_size, mode="nearest-exact")
        return interpolate(planes, size=self.output_size, mode="bilinear", align_corners=False)

    def _padded(self, pixels: Tensor) -> Tensor:
        """The margin is what becomes 0 once it is normalised, as around the images of a prediction."""
        border = self.padding
        padded = pad(pixels, (border,) * 4)
        empty = empty_pixel(self.spec)
        if any(empty):
            outside = pad(torch.ones_like(pixels[:1, :1]), (border,) * 4) == 0
            padded = torch.where(outside, _margin_values(empty, padded.device), padded)
        return padded.contiguous(memory_format=torch.channels_last)


def build_preparation(recipe: Recipe, spec: DataSpec) -> Preparation:
    """Builds the preparation of a recipe's samples, the same in training, validation and prediction."""
    if spec.has_dense_labels:
        return DensePreprocess(spec, image_size=recipe.image_size, margin=output_margin_of(recipe.model))
    return Preprocess(spec, recipe.image_size)
