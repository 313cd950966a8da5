"""A U-Net with padded convolutions for images of any size, with configurable depth, width and norm."""

from collections.abc import Mapping

from torch import Tensor, nn

from drivetrain.models.zoo.check_params import check_choice, check_share, check_whole
from drivetrain.models.zoo.initialise import he_normal
from drivetrain.models.zoo.layers import ConvRelu, CropLike, PadToMultiple
from drivetrain.models.zoo.unet import UShape

__all__ = ["DEFAULT_DEPTH", "UNetSame", "unet_same"]

DEFAULT_DEPTH = 4

_NORMS = ("none", "batch", "group")
# Each pooling doubles the deepest channels and the multiple to which images are padded (256 pixels at 8).
_MOST_POOLINGS = 8
# 32 groups are the default of the group-norm paper.
_MOST_GROUPS = 32
_FEWEST_CHANNELS_OF_A_GROUP = 8


class UNetSame(UShape):
    """A U-Net whose logits have the size of the images: borders are padded for the poolings, then cropped."""

    def __init__(
        self, *, channels: int, num_classes: int, depth: int, width: int, norm: str, dropout: float
    ) -> None:
        super().__init__(kernel_initialiser=he_normal)
        self._norm = norm
        self.pad = PadToMultiple(multiple=2**depth)
        self._add_levels(
            channels=channels,
            num_classes=num_classes,
            widths=tuple(width * 2**level for level in range(depth + 1)),
            drop_rate=dropout,
            up_kernel_size=2,
        )
        self.crop = CropLike()

    def _convolution(self, width: int, new_width: int) -> Mapping[str, nn.Module]:
        if self._norm == "none":
            return {"conv": ConvRelu(width, new_width, 3, padding=1)}
        convolution = nn.Conv2d(width, new_width, 3, padding=1, bias=False)
        return {"conv": convolution, "norm": _norm_layer(self._norm, new_width), "relu": nn.ReLU()}

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.crop(super().forward(self.pad(images)), images)
        return logits


def _norm_layer(norm: str, width: int) -> nn.Module:
    return nn.BatchNorm2d(width) if norm == "batch" else nn.GroupNorm(num_groups(width), width)


def num_groups(width: int) -> int:
    """The number of groups for group norm: at most 32, with at least 8 channels in each, or 1."""
    most = min(_MOST_GROUPS, max(1, width // _FEWEST_CHANNELS_OF_A_GROUP))
    return next(groups for groups in range(most, 0, -1) if width % groups == 0)


def unet_same(
    *,
    channels: int,
    num_classes: int,
    depth: int = DEFAULT_DEPTH,
    width: int = 64,
    norm: str = "none",
    dropout: float = 0.0,
) -> UNetSame:
    """`depth` poolings; `dropout` is the share of the bottleneck set to zero in training."""
    check_whole("depth", depth, most=_MOST_POOLINGS, example=4)
    check_whole("width", width, example=64)
    check_choice("norm", norm, _NORMS)
    check_share("dropout", dropout)
    return UNetSame(
        channels=channels, num_classes=num_classes, depth=depth, width=width, norm=norm, dropout=dropout
    )
