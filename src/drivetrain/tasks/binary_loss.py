"""Softmax cross-entropy and soft Dice of two classes, from the difference of their two logits."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from drivetrain.tasks.dice import denominator, soft_dice
from drivetrain.tasks.segmentation_loss import LossShares
from drivetrain.tasks.task import at_least_float32


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
        slope.add_(_dice_slope(one, is_one, dice=dice, below=below), alpha=shares.dice)
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


def _dice_slope(one: Tensor, is_one: Tensor, *, dice: Tensor, below: Tensor) -> Tensor:
    """By how much 1 - (mean of both Dices) grows with the margin, at every pixel."""
    zero = 1 - one
    gain_of_zero, gain_of_one = (1 / below)[:, :, None].unbind(1)
    loss_of_zero, loss_of_one = (dice / below)[:, :, None].unbind(1)
    slope = gain_of_zero - (gain_of_zero + gain_of_one) * is_one
    return slope.addcmul_(loss_of_one, one).addcmul_(-loss_of_zero, zero).mul_(one).mul_(zero)
