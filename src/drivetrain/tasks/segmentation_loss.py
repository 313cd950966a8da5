"""Cross-entropy and soft Dice of two or more classes, with the weight of each part and pixel."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from drivetrain.tasks.task import at_least_float32

_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class LossShares:
    """The factors of cross-entropy and of 1 - soft Dice in the loss."""

    cross_entropy: float
    dice: float


def pixel_factors(
    classes: Tensor,
    codes: Tensor | None,
    *,
    class_weights: Tensor | None,
    border_weight: float,
    dtype: torch.dtype,
) -> Tensor | None:
    """Each pixel's share of its sample's cross-entropy (samples, pixels), summing to 1; None: all alike.

    A pixel weighs its class's weight, or 1, and what its border code stands for: 255 is `border_weight`.
    """
    weights = None if class_weights is None else class_weights.to(dtype)[classes.long()]
    if codes is not None and border_weight:
        border = codes.to(dtype) * (border_weight / 255)
        weights = border + (1 if weights is None else weights)
    if weights is None:
        return None
    total = weights.sum(1, keepdim=True)
    # A sample whose pixels all weigh nothing has no cross-entropy.
    return weights / total.masked_fill(total == 0, 1)


# The soft Dice of the published U-Nets, from sums over the pixels of each sample.


def soft_dice(*, shared: Tensor, squares: Tensor, pixels: Tensor) -> Tensor:
    """Dice (samples, classes) with squared probabilities in the denominator.

    `shared` sums the probability of a class over the pixels that have it, `squares` its square over all
    pixels; `pixels` counts those that have it (0 and 1 are their own squares).
    """
    return (2 * shared + _EPSILON) / denominator(squares=squares, pixels=pixels)


def denominator(*, squares: Tensor, pixels: Tensor) -> Tensor:
    """What twice the shared sum is divided by."""
    return squares + pixels + _EPSILON


# Softmax cross-entropy and soft Dice of two classes, from the difference of their two logits.


class BinaryLoss(torch.autograd.Function):
    """Losses (samples,) and soft Dice (samples, 2) of logits (samples, 2, height, width).

    The softmax of two logits is the sigmoid of their difference, so everything happens on half the values;
    for the backward pass only the logits are kept.
    """

    @staticmethod
    def forward(
        ctx: Any, logits: Tensor, classes: Tensor, factors: Tensor | None, shares: LossShares
    ) -> tuple[Tensor, Tensor]:
        margin = _margin(logits)
        is_one = classes.to(margin.dtype)
        shared, squares, counts = _sums(margin.sigmoid(), is_one)
        dice = soft_dice(shared=shared, squares=squares, pixels=counts)
        costs = F.softplus(margin.mul_(1 - 2 * is_one))
        cross_entropy = costs.mean(1) if factors is None else (costs * factors).sum(1)
        ctx.save_for_backward(logits, classes, factors, dice, denominator(squares=squares, pixels=counts))
        ctx.shares = shares
        ctx.mark_non_differentiable(dice)
        return shares.cross_entropy * cross_entropy + shares.dice * (1 - dice.mean(1)), dice

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        logits, classes, factors, dice, below = ctx.saved_tensors
        shares: LossShares = ctx.shares
        one = _margin(logits).sigmoid_()
        is_one = classes.to(one.dtype)
        slope = (one - is_one).mul_(1 / one.shape[1] if factors is None else factors)
        slope.mul_(shares.cross_entropy)
        slope.add_(_dice_slope_of_two(one, is_one, dice=dice, below=below), alpha=shares.dice)
        slope.mul_(gradients[0][:, None])
        planes = slope.view(len(logits), *logits.shape[2:])
        gradient = torch.empty_like(logits)
        gradient[:, 0], gradient[:, 1] = -planes, planes
        return gradient, None, None, None


def _margin(logits: Tensor) -> Tensor:
    """How much more the second class has than the first: (samples, pixels), in float32 or wider."""
    planes = at_least_float32(logits)
    return (planes[:, 1] - planes[:, 0]).flatten(1)


def _sums(one: Tensor, is_one: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Per class: the probability where it is right, its square everywhere, and how many pixels there are."""
    zero = 1 - one
    shared = torch.stack([(zero * (1 - is_one)).sum(1), (one * is_one).sum(1)], dim=1)
    squares = torch.stack([(zero * zero).sum(1), (one * one).sum(1)], dim=1)
    ones = is_one.sum(1)
    return shared, squares, torch.stack([one.shape[1] - ones, ones], dim=1)


def _dice_slope_of_two(one: Tensor, is_one: Tensor, *, dice: Tensor, below: Tensor) -> Tensor:
    """By how much 1 - (mean of both Dices) grows with the margin, at every pixel."""
    zero = 1 - one
    gain_of_zero, gain_of_one = (1 / below)[:, :, None].unbind(1)
    loss_of_zero, loss_of_one = (dice / below)[:, :, None].unbind(1)
    slope = gain_of_zero - (gain_of_zero + gain_of_one) * is_one
    return slope.addcmul_(loss_of_one, one).addcmul_(-loss_of_zero, zero).mul_(one).mul_(zero)


# Cross-entropy and soft Dice of any number of classes.


class ManyClassLoss(torch.autograd.Function):
    """Losses (samples,) and soft Dice (samples, classes) of logits (samples, classes, height, width).

    For the backward pass only the logits are kept; classes stay numbers, no plane is made of each.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        classes: Tensor,
        factors: Tensor | None,
        shares: LossShares,
        sigmoid: bool,
    ) -> tuple[Tensor, Tensor]:
        planes = _planes(logits)
        probabilities = planes.log_softmax(1)
        log_of_right = _at_class(probabilities, classes)
        costs = _sigmoid_costs(planes, classes) if sigmoid else -log_of_right
        cross_entropy = costs.mean(1) if factors is None else (costs * factors).sum(1)
        probabilities.exp_()
        squares = (probabilities * probabilities).sum(2)
        shared, counts = _sums_by_class(log_of_right.exp(), classes, num_classes=planes.shape[1])
        dice = soft_dice(shared=shared, squares=squares, pixels=counts)
        ctx.save_for_backward(logits, classes, factors, dice, denominator(squares=squares, pixels=counts))
        ctx.shares, ctx.sigmoid = shares, sigmoid
        ctx.mark_non_differentiable(dice)
        return shares.cross_entropy * cross_entropy + shares.dice * (1 - dice.mean(1)), dice

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, classes, factors, dice, below = ctx.saved_tensors
        planes = _planes(logits)
        probabilities = planes.softmax(1)
        slope, slope_at_class = _dice_slope_of_many(probabilities, classes, dice=dice, below=below)
        slope.mul_(ctx.shares.dice)
        slope_at_class.mul_(ctx.shares.dice)
        share = torch.full_like(slope_at_class, 1 / planes.shape[2]) if factors is None else factors
        share = share * (ctx.shares.cross_entropy / (planes.shape[1] if ctx.sigmoid else 1))
        slope.addcmul_(planes.sigmoid() if ctx.sigmoid else probabilities, share[:, None])
        slope.scatter_add_(1, classes[:, None].long(), (slope_at_class - share)[:, None])
        slope.mul_(gradients[0][:, None, None])
        return torch.empty_like(logits).copy_(slope.view(logits.shape)), None, None, None, None


def _planes(logits: Tensor) -> Tensor:
    """(samples, classes, pixels) in float32 or wider, one class after the other.

    A softmax over a few values that lie side by side, as in channels-last memory, would be much slower.
    """
    return at_least_float32(logits).contiguous(memory_format=torch.contiguous_format).flatten(2)


def _at_class(planes: Tensor, classes: Tensor) -> Tensor:
    """The value of each pixel's own class."""
    return planes.gather(1, classes[:, None].long()).squeeze(1)


def _sigmoid_costs(planes: Tensor, classes: Tensor) -> Tensor:
    """The mean over classes of the cost of saying yes or no to each."""
    return (F.softplus(planes).sum(1) - _at_class(planes, classes)) / planes.shape[1]


def _sums_by_class(values: Tensor, classes: Tensor, *, num_classes: int) -> tuple[Tensor, Tensor]:
    """Sums (samples, classes) of values over the pixels of each class, and how many those are.

    One class after the other: scattered sums would add in any order on an accelerator.
    """
    sums, counts = [], []
    for number in range(num_classes):
        is_class = (classes == number).to(values.dtype)
        sums.append((values * is_class).sum(1))
        counts.append(is_class.sum(1))
    return torch.stack(sums, dim=1), torch.stack(counts, dim=1)


def _dice_slope_of_many(
    probabilities: Tensor, classes: Tensor, *, dice: Tensor, below: Tensor
) -> tuple[Tensor, Tensor]:
    """By how much 1 - (mean over classes of Dice) grows with each logit.

    That is the first tensor, and the second on top of it at the class of each pixel.
    """
    scale = 2 / dice.shape[1] / below
    pull = _at_class(probabilities, classes) * scale.gather(1, classes.long())
    slope = probabilities * (scale * dice)[:, :, None]
    mean = (slope * probabilities).sum(1).sub_(pull)
    return slope.sub_(mean[:, None]).mul_(probabilities), -pull
