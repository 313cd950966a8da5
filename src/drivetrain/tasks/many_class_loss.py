"""Cross-entropy and soft Dice of any number of classes."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from drivetrain.tasks.dice import denominator, soft_dice
from drivetrain.tasks.segmentation_loss import LossShares
from drivetrain.tasks.task import at_least_float32


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
        slope, slope_at_class = _dice_slope(probabilities, classes, dice=dice, below=below)
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


def _dice_slope(
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
