"""The all-reduces of a weight update: gradient, loss and score, stop votes, batch-norm statistics."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from drivetrain.core.errors import RunFailedError
from drivetrain.layers.batch_norm import BatchNormOwner
from drivetrain.passes.gradient_sum import GradientSum
from drivetrain.program.gradient_rules import are_finite
from drivetrain.program.move_weights import WeightMover
from drivetrain.program.stop_votes import StopVotes
from drivetrain.ranks.replica_group import ALL_ALONE, RankGroups

__all__ = ["RankSums"]


def _never() -> bool:
    return False


@dataclass(slots=True, kw_only=True)
class RankSums:
    """Sums the gradient, loss, score, stop votes and batch-norm statistics over all ranks."""

    gradient_sum: GradientSum
    stop_votes: StopVotes
    batch_norms: BatchNormOwner
    mover: WeightMover
    groups: RankGroups = ALL_ALONE
    wants_stop: Callable[[], bool] = _never

    def add_up(self, update: int, loss: Tensor, score: Tensor) -> tuple[Tensor, Tensor]:
        """Runs all all-reduces of an update; returns the loss and score over all ranks."""
        self.gradient_sum.finish()
        own = torch.stack([loss, score]).to(self.mover.device.wide_dtype)
        if self.groups.devices.size > 1:
            return self._add_up_stages(update, own)
        return self._add_up_replicas(own)

    def _add_up_replicas(self, own: Tensor) -> tuple[Tensor, Tensor]:
        # One all-reduce for everything small: each one costs a round trip.
        vote = own.new_full((1,), float(self.wants_stop()))
        sums = torch.cat([own, vote, self.batch_norms.report_sums()])
        self.groups.world.sum_(sums)
        self.mover.is_moving = True
        self.batch_norms.commit_sums(sums[3:])
        self.stop_votes.count(sums[2])
        return sums[0], sums[1]

    def _add_up_stages(self, update: int, own: Tensor) -> tuple[Tensor, Tensor]:
        """Each rank has the gradient of its own stages, so all must learn if one of them is not finite."""
        gradients, loss_scale = self.mover.parameters.gradients, self.mover.loss_scale
        is_bad = ~are_finite(gradients)
        flags = torch.stack([own.new_tensor(float(self.wants_stop())), is_bad.to(own)])
        sums = torch.cat([own, flags])
        self.groups.world.sum_(sums)
        self.mover.is_moving = True
        self.stop_votes.count(sums[2])
        if loss_scale is not None:
            loss_scale.judge(sums[3] > 0)
            self._commit_statistics()
            return sums[0], sums[1]
        if self.mover.device.is_cpu and sums[3]:
            raise self._not_finite(update, ranks=int(sums[3]))
        self._commit_statistics()
        # Raising here would need a synchronisation of the accelerator. Instead the gradient becomes 0 and the
        # recorded loss NaN, which stops the run at the next host event.
        gradients.masked_fill_(sums[3] > 0, 0.0)
        return torch.where(sums[3] > 0, torch.nan, sums[0]), sums[1]

    def _not_finite(self, update: int, *, ranks: int) -> RunFailedError:
        return RunFailedError(
            f"the gradient is not finite at update {update + 1}, on {ranks} of {self.groups.world.size} "
            f"ranks; the weights were not changed; {self.mover.rules.advice_on_overflow}."
        )

    def _commit_statistics(self) -> None:
        # Stages without batch norm have nothing to sum; their empty vector might even be on another device.
        if self.groups.replicas.size == 1 or not self.batch_norms.layers:
            self.batch_norms.commit()
            return
        sums = self.batch_norms.report_sums()
        self.groups.replicas.sum_(sums)
        self.batch_norms.commit_sums(sums)
