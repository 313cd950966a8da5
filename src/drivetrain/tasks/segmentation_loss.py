"""Cross-entropy plus soft Dice for two or more classes, with weights for pixels, as autograd functions."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from drivetrain.data.source import IGNORED
from drivetrain.tasks.task import at_least_float32

# Keeps the Dice of a class that is neither present nor predicted at 1 instead of 0 / 0.
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class LossShares:
    """The weights of cross-entropy and of (1 - soft Dice) in the loss."""

    cross_entropy: float
    dice: float


def pixel_factors(
    classes: Tensor,
    codes: Tensor | None,
    *,
    class_weights: Tensor | None,
    border_weight: float,
    counted: Tensor | None = None,
    dtype: torch.dtype,
) -> Tensor | None:
    """The weight of each pixel in its sample's cross-entropy (samples, pixels), summing to 1.

    A pixel has the weight of its class, or 1, plus its border weight: code 255 means `border_weight`. Pixels
    where `counted` is 0 have none. None if all pixels have the same weight.
    """
    weights = None if class_weights is None else class_weights.to(dtype)[_usable(classes, counted).long()]
    if codes is not None and border_weight:
        border = codes.to(dtype) * (border_weight / 255)
        weights = border + (1 if weights is None else weights)
    if counted is not None:
        weights = counted.to(dtype) if weights is None else weights * counted
    if weights is None:
        return None
    total = weights.sum(1, keepdim=True)
    # If all pixels of a sample have weight 0, its cross-entropy is 0 instead of 0 / 0.
    return weights / total.masked_fill(total == 0, 1)


def counted_pixels(classes: Tensor) -> Tensor:
    """Which pixels have a class (samples, pixels); the others are ignored."""
    return classes != IGNORED


def _usable(classes: Tensor, counted: Tensor | None) -> Tensor:
    """Classes that can be looked up: ignored pixels count as class 0."""
    return classes if counted is None else classes * counted


def soft_dice(*, shared: Tensor, squares: Tensor, pixels: Tensor) -> Tensor:
    """Soft Dice (samples, classes) with squared probabilities in the denominator, as in the published U-Nets.

    `shared` sums the probability of a class over the pixels of that class, `squares` its square over all
    pixels; `pixels` is the number of pixels of that class (0 and 1 are their own squares).
    """
    return (2 * shared + _EPSILON) / denominator(squares=squares, pixels=pixels)


def denominator(*, squares: Tensor, pixels: Tensor) -> Tensor:
    """The denominator of the soft Dice."""
    return squares + pixels + _EPSILON


class BinaryLoss(torch.autograd.Function):
    """Losses (samples,) and soft Dice (samples, 2) of logits (samples, 2, height, width).

    The softmax of two logits is the sigmoid of their difference, so everything is computed on half the
    values. Only the logits are saved for the backward pass. With `ignores`, pixels may be `IGNORED`, and
    their weights in `factors` are 0.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        classes: Tensor,
        factors: Tensor | None,
        shares: LossShares,
        ignores: bool,
    ) -> tuple[Tensor, Tensor]:
        margin = _margin(logits)
        counted = counted_pixels(classes) if ignores else None
        is_one = _usable(classes, counted).to(margin.dtype)
        shared, squares, counts = _sums(margin.sigmoid(), is_one, counted)
        dice = soft_dice(shared=shared, squares=squares, pixels=counts)
        costs = F.softplus(margin.mul_(1 - 2 * is_one))
        cross_entropy = costs.mean(1) if factors is None else (costs * factors).sum(1)
        ctx.save_for_backward(logits, classes, factors, dice, denominator(squares=squares, pixels=counts))
        ctx.shares, ctx.ignores = shares, ignores
        ctx.mark_non_differentiable(dice)
        return shares.cross_entropy * cross_entropy + shares.dice * (1 - dice.mean(1)), dice

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None]:
        logits, classes, factors, dice, below = ctx.saved_tensors
        shares: LossShares = ctx.shares
        one = _margin(logits).sigmoid_()
        counted = counted_pixels(classes) if ctx.ignores else None
        is_one = _usable(classes, counted).to(one.dtype)
        slope = (one - is_one).mul_(1 / one.shape[1] if factors is None else factors)
        slope.mul_(shares.cross_entropy)
        of_dice = _dice_slope_of_two(one, is_one, dice=dice, below=below)
        slope.add_(of_dice if counted is None else of_dice.mul_(counted), alpha=shares.dice)
        slope.mul_(gradients[0][:, None])
        planes = slope.view(len(logits), *logits.shape[2:])
        gradient = torch.empty_like(logits)
        gradient[:, 0], gradient[:, 1] = -planes, planes
        return gradient, None, None, None, None


def _margin(logits: Tensor) -> Tensor:
    """The logit of the second class minus that of the first: (samples, pixels), in float32 or wider."""
    planes = at_least_float32(logits)
    return (planes[:, 1] - planes[:, 0]).flatten(1)


def _sums(one: Tensor, is_one: Tensor, counted: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    """Per class: the sum of its probability over its pixels, of its square over all, and its pixel count."""
    zero = 1 - one
    if counted is not None:
        # Ignored pixels have class 0 and no probability.
        one, zero = one * counted, zero * counted
    shared = torch.stack([(zero * (1 - is_one)).sum(1), (one * is_one).sum(1)], dim=1)
    squares = torch.stack([(zero * zero).sum(1), (one * one).sum(1)], dim=1)
    ones = is_one.sum(1)
    pixels = one.shape[1] if counted is None else counted.sum(1)
    return shared, squares, torch.stack([pixels - ones, ones], dim=1)


def _dice_slope_of_two(one: Tensor, is_one: Tensor, *, dice: Tensor, below: Tensor) -> Tensor:
    """The derivative of 1 - (mean of both Dice scores) with respect to the margin, at every pixel."""
    zero = 1 - one
    gain_of_zero, gain_of_one = (1 / below)[:, :, None].unbind(1)
    loss_of_zero, loss_of_one = (dice / below)[:, :, None].unbind(1)
    slope = gain_of_zero - (gain_of_zero + gain_of_one) * is_one
    return slope.addcmul_(loss_of_one, one).addcmul_(-loss_of_zero, zero).mul_(one).mul_(zero)


class ManyClassLoss(torch.autograd.Function):
    """Losses (samples,) and soft Dice (samples, classes) of logits (samples, classes, height, width).

    Only the logits are saved for the backward pass. Classes stay numbers; no one-hot planes are made. With
    `ignores`, pixels may be `IGNORED`, and their weights in `factors` are 0.
    """

    @staticmethod
    def forward(
        ctx: Any,
        logits: Tensor,
        classes: Tensor,
        factors: Tensor | None,
        shares: LossShares,
        sigmoid: bool,
        ignores: bool,
    ) -> tuple[Tensor, Tensor]:
        planes = _planes(logits)
        counted = counted_pixels(classes) if ignores else None
        usable = _usable(classes, counted)
        probabilities = planes.log_softmax(1)
        log_of_right = _at_class(probabilities, usable)
        costs = _sigmoid_costs(planes, usable) if sigmoid else -log_of_right
        cross_entropy = costs.mean(1) if factors is None else (costs * factors).sum(1)
        probabilities.exp_()
        squares = _sums_of_squares(probabilities, counted)
        shared, counts = _sums_by_class(log_of_right.exp(), classes, num_classes=planes.shape[1])
        dice = soft_dice(shared=shared, squares=squares, pixels=counts)
        ctx.save_for_backward(logits, classes, factors, dice, denominator(squares=squares, pixels=counts))
        ctx.shares, ctx.sigmoid, ctx.ignores = shares, sigmoid, ignores
        ctx.mark_non_differentiable(dice)
        return shares.cross_entropy * cross_entropy + shares.dice * (1 - dice.mean(1)), dice

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None, None, None]:
        logits, classes, factors, dice, below = ctx.saved_tensors
        planes = _planes(logits)
        counted = counted_pixels(classes) if ctx.ignores else None
        usable = _usable(classes, counted)
        probabilities = planes.softmax(1)
        slope, slope_at_class = _dice_slope_of_many(probabilities, usable, dice=dice, below=below)
        if counted is not None:
            slope.mul_(counted[:, None])
            slope_at_class.mul_(counted)
        slope.mul_(ctx.shares.dice)
        slope_at_class.mul_(ctx.shares.dice)
        share = torch.full_like(slope_at_class, 1 / planes.shape[2]) if factors is None else factors
        share = share * (ctx.shares.cross_entropy / (planes.shape[1] if ctx.sigmoid else 1))
        slope.addcmul_(planes.sigmoid() if ctx.sigmoid else probabilities, share[:, None])
        slope.scatter_add_(1, usable[:, None].long(), (slope_at_class - share)[:, None])
        slope.mul_(gradients[0][:, None, None])
        return torch.empty_like(logits).copy_(slope.view(logits.shape)), None, None, None, None, None


def _planes(logits: Tensor) -> Tensor:
    """Logits as (samples, classes, pixels) in float32 or wider, contiguous by class.

    A softmax over few adjacent values, as in channels-last memory, would be much slower.
    """
    return at_least_float32(logits).contiguous(memory_format=torch.contiguous_format).flatten(2)


def _at_class(planes: Tensor, classes: Tensor) -> Tensor:
    """The value of each pixel's own class."""
    return planes.gather(1, classes[:, None].long()).squeeze(1)


def _sigmoid_costs(planes: Tensor, classes: Tensor) -> Tensor:
    """The binary cross-entropy of each pixel, as a mean over classes."""
    return (F.softplus(planes).sum(1) - _at_class(planes, classes)) / planes.shape[1]


def _sums_of_squares(probabilities: Tensor, counted: Tensor | None) -> Tensor:
    """The sum of each class's squared probabilities over the pixels that count: (samples, classes)."""
    squares = probabilities * probabilities
    return (squares if counted is None else squares.mul_(counted[:, None])).sum(2)


def _sums_by_class(values: Tensor, classes: Tensor, *, num_classes: int) -> tuple[Tensor, Tensor]:
    """Sums (samples, classes) of values over the pixels of each class, and the number of these pixels.

    One class after the other: a scatter-add on an accelerator adds in a random order, so it is not
    reproducible.
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
    """The derivative of 1 - (mean over classes of Dice) with respect to each logit.

    It is the first tensor plus, only at the class of each pixel, the second.
    """
    scale = 2 / dice.shape[1] / below
    pull = _at_class(probabilities, classes) * scale.gather(1, classes.long())
    slope = probabilities * (scale * dice)[:, :, None]
    mean = (slope * probabilities).sum(1).sub_(pull)
    return slope.sub_(mean[:, None]).mul_(probabilities), -pull
