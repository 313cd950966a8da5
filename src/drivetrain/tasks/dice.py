"""The soft Dice of the published U-Nets, from sums over the pixels of each sample."""

from torch import Tensor

_EPSILON = 1e-6


def soft_dice(*, shared: Tensor, squares: Tensor, pixels: Tensor) -> Tensor:
    """Dice (samples, classes) with squared probabilities in the denominator.

    `shared` sums the probability of a class over the pixels that have it, `squares` its square over all
    pixels; `pixels` counts those that have it (0 and 1 are their own squares).
    """
    return (2 * shared + _EPSILON) / denominator(squares=squares, pixels=pixels)


def denominator(*, squares: Tensor, pixels: Tensor) -> Tensor:
    """What twice the shared sum is divided by."""
    return squares + pixels + _EPSILON
