"""The batch norm of a model in training: it normalises, and reports its statistics to their owner."""

from collections.abc import Hashable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from drivetrain.layers.group_batch_norm import Moments, group_moments, normalise
from drivetrain.models.half_weights import widened, widened_like
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup

__all__ = ["ReportingBatchNorm"]


class ReportingBatchNorm(nn.Module):
    """Stands in for a torch batch norm; normalises as it does, and leaves the statistics to the owner.

    A layer without running statistics normalises by those of the batch in evaluation too, as torch's does.
    While `recomputing` nothing is reported. Where a group normalises together, a pass that has a
    `pass_key` keeps the group's moments for the recomputation of that key, which then needs no sum.
    """

    # None in layers that track nothing; no owner moves theirs.
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(
        self,
        original: _NormBase,
        *,
        kept_share: float,
        wide_dtype: torch.dtype,
        group: ReplicaGroup = ALONE,
        stable: bool = False,
    ) -> None:
        super().__init__()
        self.group = group
        self.stable = stable
        self.wide_dtype = wide_dtype
        self.eps = original.eps
        self.kept_share = kept_share
        self.weight = original.weight
        self.bias = original.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(original, name))
        self.reported: list[tuple[Tensor, Tensor]] = []
        self.values_per_image: int | None = None
        self.recomputing = False
        self.pass_key: Hashable | None = None
        self.kept_moments: dict[Hashable, list[Moments]] = {}

    @property
    def tracks_statistics(self) -> bool:
        return self.running_mean is not None

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return self._evaluated(inputs)
        if self.group.size > 1 or self.stable:
            return self._normalised_by_group(inputs)
        outputs, mean, inverse_deviation = torch.native_batch_norm(
            inputs, *self._scale_and_shift(), None, None, True, 0.0, self.eps
        )
        self._report(mean.detach(), inverse_deviation.detach())
        return outputs

    def _evaluated(self, inputs: Tensor) -> Tensor:
        self.values_per_image = inputs.numel() // (inputs.shape[0] * inputs.shape[1])
        weight, bias = self._scale_and_shift()
        return nn.functional.batch_norm(
            inputs,
            self.running_mean,
            self.running_var,
            weight,
            bias,
            training=not self.tracks_statistics,
            momentum=0.0,
            eps=self.eps,
        )

    def _report(self, mean: Tensor, inverse_deviation: Tensor) -> None:
        if self.tracks_statistics and not self.recomputing:
            self.reported.append((mean, inverse_deviation))

    def _scale_and_shift(self) -> tuple[Tensor | None, Tensor | None]:
        if self.tracks_statistics:
            weight, bias = widened_like(self.running_mean, self.weight, self.bias)
        else:
            weight, bias = (None if part is None else widened(part) for part in (self.weight, self.bias))
        return weight, bias

    def _normalised_by_group(self, inputs: Tensor) -> Tensor:
        moments = self._kept_moments() if self.recomputing else None
        if moments is None:
            moments = group_moments(inputs, group=self.group, stable=self.stable, wide_dtype=self.wide_dtype)
        self._report(moments.mean, (moments.variance + self.eps).rsqrt())
        if not self.recomputing and self.pass_key is not None:
            self.kept_moments.setdefault(self.pass_key, []).append(moments)
        weight, bias = self._scale_and_shift()
        return normalise(inputs, weight, bias, moments=moments, group=self.group, eps=self.eps)

    def _kept_moments(self) -> Moments | None:
        """Those of the first pass, in the order in which the layer ran in it; each is given once."""
        kept = self.kept_moments.get(self.pass_key, [])
        moments = kept.pop(0) if kept else None
        if not kept:
            self.kept_moments.pop(self.pass_key, None)
        return moments

    def extra_repr(self) -> str:
        channels = self.running_mean.numel() if self.tracks_statistics else "no running statistics"
        return f"{channels}, eps={self.eps}, kept_share={self.kept_share}"
