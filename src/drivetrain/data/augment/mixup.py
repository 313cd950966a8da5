"""Mixup: every training image is mixed with another one, and so are their labels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.technique import draw_per_sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Mixup:
    """Mixes with weights from Beta(alpha, alpha); the sample's own image gets the larger weight.

    A partner is any training sample, not just one of the same batch, so the result does not depend on the
    layout (replicas, stages, accumulation).
    """

    alpha: float

    def draw_partners(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64], usable: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Draws a mixup partner for each sample from `usable`."""
        numbers = draw_per_sample(seed, "mixup partner", passes=passes, indices=indices)
        return usable[(numbers * len(usable)).astype(np.int64)]

    def draw_mix(
        self, seed: int, *, passes: NDArray[np.int64], indices: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        """Draws the weight of each sample's own image, from 1/2 to 1."""
        from scipy.special import betaincinv  # slow to import, and few recipes mix

        numbers = draw_per_sample(seed, "mixup share", passes=passes, indices=indices)
        shares: NDArray[np.float64] = betaincinv(self.alpha, self.alpha, numbers)
        return np.maximum(shares, 1 - shares).astype(np.float32)


def mix_images(images: Tensor, mix: Tensor) -> Tensor:
    """Mixes each image of the first half with its partner in the second half."""
    own, partners = images[: len(mix)], images[len(mix) :]
    share = mix[:, None, None, None]
    return own * share + partners * (1 - share)
