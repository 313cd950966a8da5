"""The last part of an update: the optimiser step, then the weight average and the loss scale."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from drivetrain.devices.compilation import Compilable
from drivetrain.devices.device import Device
from drivetrain.layers.context import UpdateContext
from drivetrain.models.half_weights import widened
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.optim.learning_rate import LearningRate
from drivetrain.optim.optimiser import Optimiser
from drivetrain.optim.part_rates import PartRate, hold_back_
from drivetrain.passes.loss_scale import DynamicLossScale
from drivetrain.program.averaging import WeightAverage
from drivetrain.program.gradient_rules import GradientRules, add_l2_, clip_norm_
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup

__all__ = ["WeightMover"]


@dataclass(slots=True, kw_only=True)
class WeightMover:
    """Updates the weights from their gradient, of which the ranks in `parts` hold a part each.

    `waiting` are the places of weights that are not updated before a later update. Nothing synchronises with
    the CPU.
    """

    parameters: FlatParameters
    context: UpdateContext
    device: Device
    optimiser: Optimiser
    learning_rate: LearningRate
    rules: GradientRules
    parts: ReplicaGroup = ALONE
    waiting: Sequence[tuple[slice, PartRate]] = ()
    loss_scale: DynamicLossScale | None = None
    average: WeightAverage | None = None
    is_moving: bool = False
    """Whether weights or statistics may have changed since the last finished update; the loop resets it."""
    move_weights: Compilable[[Tensor], None] = field(init=False)
    _rates: Tensor | None = None

    def __post_init__(self) -> None:
        self.move_weights = Compilable(self._move_weights, what="the optimiser", whole=True)

    @property
    def skips(self) -> Tensor | None:
        """The flag on the device that says whether this update is skipped; None if none ever is."""
        return None if self.loss_scale is None else self.loss_scale.skips

    def rate(self, *, updates: int) -> Tensor:
        """The learning rate of the current update; the rates of all updates are computed at the first."""
        if self._rates is None:
            numbers = torch.arange(updates, device=self.device.torch_device)
            self._rates = self.learning_rate.on_device(numbers)
        return self._rates.index_select(0, self.context.update.view(1)).view(())

    def move_average(self) -> None:
        """Updates the average of weights and statistics, if there is one."""
        if self.average is not None:
            self.average.move(self.context.update, wide_dtype=self.device.wide_dtype, skips=self.skips)

    def scale_numbers(self) -> dict[str, Tensor]:
        """The values of a dynamic loss scale that are recorded per update."""
        if self.loss_scale is None:
            return {}
        return {"loss_scale": self.loss_scale.scale, "skipped": self.loss_scale.skips}

    def move_scale(self) -> None:
        """Adapts a dynamic loss scale for the next update."""
        if self.loss_scale is not None:
            self.loss_scale.move()

    def _move_weights(self, rate: Tensor) -> None:
        self.optimiser.step(
            values=self.parameters.values,
            gradients=self._finished_gradient(),
            rate=rate,
            update=self.context.update,
        )

    def _finished_gradient(self) -> Tensor:
        """The gradient for the optimiser: unscaled, with L2 penalty, clipped; float32 for 16-bit weights.

        The order matters: the penalty and the clipping limit apply to the true gradient, not the scaled one,
        and weights that wait for a later update do not count in the norm.
        """
        gradients = widened(self.parameters.gradients)
        if self.loss_scale is not None:
            if self.parts.size == 1:
                self.loss_scale.judge(~torch.isfinite(gradients).all())
            self.loss_scale.take_out_(gradients)
        elif self.rules.loss_scaling:
            gradients.div_(self.rules.loss_scaling)
        if self.rules.l2_regularization:
            add_l2_(gradients, self.parameters.values, factor=self.rules.l2_regularization)
        hold_back_(gradients, parts=self.waiting, update=self.context.update)
        if self.rules.clip_norm is not None:
            clip_norm_(gradients, longest=self.rules.clip_norm, parts=self.parts)
        return gradients
