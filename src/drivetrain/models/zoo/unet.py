"""The U-Net of Ronneberger, Fischer and Brox with unpadded convolutions, in two published variants.

The output is smaller than the input by 92 pixels on each side. Skip connections are cropped in the encoder,
so that only the cropped part stays in memory. Layers have their published names without the device's name:
`central_crop_1` was published as `central_crop_ipu_1`.
"""

from collections.abc import Mapping
from typing import NamedTuple

from torch import Tensor, nn

from drivetrain.models.zoo.check_params import check_share, check_whole
from drivetrain.models.zoo.initialise import InitialisedModel, Initialiser, glorot_uniform, he_normal
from drivetrain.models.zoo.layers import CentralCrop, Concatenate, ConvRelu, UpConvRelu

__all__ = ["UNet", "UShape", "unet", "unet_medical"]

# The pixels to crop from each side of a skip connection, from the top level down: the deeper levels lose as
# many by their unpadded convolutions.
_SKIP_CROPS = (88, 40, 16, 4)


class _EncoderBlock(NamedTuple):
    """The layer names of one encoder level; without `crop`, the skip connection is not cropped."""

    convolutions: tuple[str, ...]
    crop: str | None
    pool: str


class _DecoderBlock(NamedTuple):
    """The layer names of one decoder level."""

    transpose: str
    concat: str
    convolutions: tuple[str, ...]


class UShape(InitialisedModel):
    """Base class of U-Nets: encoder levels that halve the image, a bottleneck, decoder levels.

    A family registers its layers with `_add_levels`; one that pads or normalises overrides `_convolution`.
    """

    def __init__(self, *, kernel_initialiser: Initialiser) -> None:
        super().__init__()
        self._kernel_initialiser = kernel_initialiser
        self._encoder: list[_EncoderBlock] = []
        self._bottleneck: tuple[str, ...] = ()
        self._decoder: list[_DecoderBlock] = []

    def _convolution(self, width: int, new_width: int) -> Mapping[str, nn.Module]:
        """The layers of one 3x3 convolution with its ReLU, keyed by role."""
        return {"conv": ConvRelu(width, new_width, 3)}

    def _add_levels(
        self,
        *,
        channels: int,
        num_classes: int,
        widths: tuple[int, ...],
        drop_rate: float,
        up_kernel_size: int,
        skip_crops: tuple[int, ...] = (),
    ) -> None:
        """Registers all layers in execution order; the last of the widths is that of the bottleneck."""
        *level_widths, bottleneck_width = widths
        width = channels
        for level, new_width in enumerate(level_widths):
            crop = skip_crops[level] if skip_crops else None
            self._encoder.append(self._add_encoder_block(level, width, new_width, crop=crop))
            width = new_width
        prefix = f"encoder_block_{len(level_widths)}"
        convolutions = self._add_convolutions(prefix, width, bottleneck_width)
        self._bottleneck = (*convolutions, self._add(f"{prefix}_dropout", nn.Dropout(drop_rate)))
        width = bottleneck_width
        for index, new_width in enumerate(reversed(level_widths)):
            self._decoder.append(self._add_decoder_block(index, width, new_width, kernel_size=up_kernel_size))
            width = new_width
        self.output_conv = nn.Conv2d(width, num_classes, 1)

    def _add_encoder_block(
        self, level: int, width: int, new_width: int, *, crop: int | None
    ) -> _EncoderBlock:
        prefix = f"encoder_block_{level}"
        convolutions = self._add_convolutions(prefix, width, new_width)
        crop_name = "central_crop" if level == 0 else f"central_crop_{level}"
        return _EncoderBlock(
            convolutions,
            crop=None if crop is None else self._add(crop_name, CentralCrop(pixels=crop)),
            pool=self._add(f"{prefix}_maxpooling", nn.MaxPool2d(2)),
        )

    def _add_decoder_block(
        self, index: int, width: int, new_width: int, *, kernel_size: int
    ) -> _DecoderBlock:
        prefix = f"decoder_block_{index}"
        return _DecoderBlock(
            transpose=self._add(f"{prefix}_transpose", UpConvRelu(width, new_width, kernel_size=kernel_size)),
            concat=self._add(f"{prefix}_concat", Concatenate()),
            convolutions=self._add_convolutions(prefix, 2 * new_width, new_width),
        )

    def _add_convolutions(self, prefix: str, width: int, new_width: int) -> tuple[str, ...]:
        names: list[str] = []
        for index, width_before in enumerate((width, new_width)):
            for role, layer in self._convolution(width_before, new_width).items():
                names.append(self._add(f"{prefix}_{role}_{index}", layer))
        return tuple(names)

    def _add(self, name: str, layer: nn.Module) -> str:
        self.add_module(name, layer)
        return name

    def forward(self, images: Tensor) -> Tensor:
        # A single variable for the features, so that nothing but the skips stays in memory after its level.
        features = images
        skips: list[Tensor] = []
        for down in self._encoder:
            for name in down.convolutions:
                features = getattr(self, name)(features)
            skips.append(getattr(self, down.crop)(features) if down.crop else features)
            features = getattr(self, down.pool)(features)
        for name in self._bottleneck:
            features = getattr(self, name)(features)
        for up in self._decoder:
            features = getattr(self, up.concat)(getattr(self, up.transpose)(features), skips.pop())
            for name in up.convolutions:
                features = getattr(self, name)(features)
        logits: Tensor = self.output_conv(features)
        return logits

    def initialiser_of(self, parameter_name: str) -> Initialiser:
        """The family's initialiser for convolutions; transposed convolutions are always Glorot uniform."""
        layer_name, _, role = parameter_name.rpartition(".")
        is_kernel = role == "weight" and isinstance(self.get_submodule(layer_name), nn.Conv2d)
        return self._kernel_initialiser if is_kernel else super().initialiser_of(parameter_name)


class UNet(UShape):
    """Four levels and a bottleneck, all unpadded: the input must be larger than the area to segment."""

    def __init__(
        self,
        *,
        channels: int,
        num_classes: int,
        width: int,
        drop_rate: float,
        up_kernel_size: int,
        kernel_initialiser: Initialiser,
    ) -> None:
        super().__init__(kernel_initialiser=kernel_initialiser)
        check_whole("width", width, example=64)
        check_share("drop_rate", drop_rate)
        self._add_levels(
            channels=channels,
            num_classes=num_classes,
            widths=tuple(width * 2**level for level in range(len(_SKIP_CROPS) + 1)),
            drop_rate=drop_rate,
            up_kernel_size=up_kernel_size,
            skip_crops=_SKIP_CROPS,
        )


def unet(*, channels: int, num_classes: int, width: int = 64, drop_rate: float = 0.5) -> UNet:
    """2x2 up-convolutions; `drop_rate` is the share of the bottleneck set to zero in training."""
    return UNet(
        channels=channels,
        num_classes=num_classes,
        width=width,
        drop_rate=drop_rate,
        up_kernel_size=2,
        kernel_initialiser=he_normal,
    )


def unet_medical(*, channels: int, num_classes: int, width: int = 64, drop_rate: float = 0.5) -> UNet:
    """3x3 up-convolutions; `drop_rate` is the share of the bottleneck set to zero in training."""
    return UNet(
        channels=channels,
        num_classes=num_classes,
        width=width,
        drop_rate=drop_rate,
        up_kernel_size=3,
        kernel_initialiser=glorot_uniform,
    )
