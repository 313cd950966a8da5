"""Random brightness, gamma and noise of images."""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.core.element_hash import draw_gaussian
from drivetrain.data.augment.technique import KEY_COLUMNS, draw_keys, keys_from
from drivetrain.data.draws import draw_around_zero
from drivetrain.data.preprocess import channels_last_view


@dataclass(frozen=True, slots=True, kw_only=True)
class Brightness:
    """Adds one number of [-`spread`, `spread`) to a whole image, then clips to [-1, 1]."""

    spread: float = 0.2

    @property
    def columns(self) -> int:
        return 1

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Draws the number added to each sample."""
        return draw_around_zero(seed, "dense brightness", spread=self.spread, passes=passes, indices=indices)

    def apply(self, images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Brighter or darker images."""
        return (images + draws[:, :, None, None]).clamp_(-1, 1), labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Gamma:
    """Maps values from [-1, 1] to [0, 1], raises them to the power 1 - `spread` to 1 + `spread`, and back."""

    spread: float

    @property
    def columns(self) -> int:
        return 1

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """Draws the exponent of each sample."""
        return 1 + draw_around_zero(seed, "gamma", spread=self.spread, passes=passes, indices=indices)

    def apply(self, images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Brighter or darker images; black and white stay."""
        # In double precision on a CPU: its vectorised and scalar float32 powers differ in the last bit.
        dtype = torch.float64 if images.device.type == "cpu" else torch.float32
        power = draws[:, :, None, None].to(dtype)
        shares = images.to(dtype, copy=True).add_(1).mul_(0.5).clamp_(0, 1)
        return shares.pow_(power).mul_(2).sub_(1).to(torch.float32), labels


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """Adds Gaussian noise of this deviation; each number is a hash of (sample's key, position)."""

    deviation: float

    @property
    def columns(self) -> int:
        return KEY_COLUMNS

    def draw(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float64]:
        """The key of each sample's noise."""
        return draw_keys(seed, "noise", passes=passes, indices=indices)

    def apply(self, images: Tensor, labels: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Noisy images."""
        samples, channels, height, width = images.shape
        numbers = draw_gaussian(keys_from(draws), channels * height * width).mul_(self.deviation)
        return channels_last_view(numbers.view(samples, height, width, channels)).add_(images), labels
