"""Batch and instance norms for training, over one replica or a group, which report to their owner."""

from collections.abc import Hashable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _NormBase

from drivetrain.models.batch_norm_classes import class_around, norm_base, norm_form
from drivetrain.models.half_weights import is_half, widened, widened_like
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup

__all__ = [
    "Moments",
    "ReportingBatchNorm",
    "ReportingInstanceNorm",
    "group_moments",
    "normalise",
    "report_statistics",
]


# Batch norm over a group of replicas costs a small all-reduce per layer in each pass. Every member takes part
# in every all-reduce, so all must run the same micro-batches in the same order. The number of samples in a
# micro-batch may differ between members; padding counts as samples.


class Moments(NamedTuple):
    """The number of values per channel, their mean and their biased variance."""

    values: Tensor
    mean: Tensor
    variance: Tensor


@torch.no_grad()
def group_moments(
    inputs: Tensor, *, group: ReplicaGroup, stable: bool, wide_dtype: torch.dtype = torch.float64
) -> Moments:
    """The moments of the inputs of all members, in the wide type: one all-reduce, two if `stable`.

    The kernel of torch sums channels_last values one after the other, which loses digits on large images with
    large means. `stable` computes the mean first, then the deviations from it, and uses pairwise summation.
    """
    moments = _moments_in_two_passes if stable else _moments_in_one_pass
    return moments(inputs, group=group, wide_dtype=wide_dtype)


def normalise(
    inputs: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    *,
    moments: Moments,
    group: ReplicaGroup,
    eps: float,
) -> Tensor:
    """Batch norm with the moments of a group; the backward pass accounts for all members' inputs.

    The gradients of weight and bias are those of this member's samples; the gradient all-reduce sums them.
    """
    outputs: Tensor = _Normalise.apply(inputs, weight, bias, moments, group, eps)  # type: ignore[no-untyped-call]
    return outputs


class _Normalise(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        inputs: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        moments: Moments,
        group: ReplicaGroup,
        eps: float,
    ) -> Tensor:
        kind = _statistics_dtype(inputs)
        mean, variance = moments.mean.to(kind), moments.variance.to(kind)
        scale, shift = (None if part is None else part.to(kind) for part in (weight, bias))
        ctx.save_for_backward(inputs, scale, mean, variance)
        ctx.values, ctx.group, ctx.eps = moments.values, group, eps
        return torch.batch_norm(inputs, scale, shift, mean, variance, False, 0.0, eps, False)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:
        inputs, scale, mean, variance = ctx.saved_tensors
        inputs, output_gradient = inputs.to(mean.dtype), output_gradient.to(mean.dtype)
        scale = torch.ones_like(mean) if scale is None else scale
        # In eval mode nothing was saved by the forward pass; CUDA needs empty tensors instead of None.
        nothing = mean.new_empty(0)
        fixed = (mean, variance, nothing, nothing, False, ctx.eps)
        input_gradient, scale_gradient, bias_gradient = torch.ops.aten.native_batch_norm_backward(
            output_gradient, inputs, scale, *fixed, [True, True, True]
        )
        wants_input, wants_scale, wants_bias, *_ = ctx.needs_input_grad
        if wants_input:
            by_mean, by_deviation = _through_moments(ctx, bias_gradient, scale_gradient)
            factor = scale * (variance + ctx.eps).rsqrt()
            parts = (inputs, factor * by_deviation, factor * by_mean, mean, variance)
            input_gradient.add_(torch.batch_norm(*parts, False, 0.0, ctx.eps, False))
        return (
            input_gradient if wants_input else None,
            scale_gradient if wants_scale else None,
            bias_gradient if wants_bias else None,
            *(None, None, None),
        )


def _through_moments(ctx: Any, bias_gradient: Tensor, scale_gradient: Tensor) -> tuple[Tensor, ...]:
    """The gradient of all members' loss through the mean and through the deviation, per value."""
    sums = torch.cat([bias_gradient, scale_gradient]).to(ctx.values.dtype)
    ctx.group.sum_(sums)
    by_value: Tensor = sums / -ctx.values
    return by_value.to(bias_gradient.dtype).chunk(2)


def _moments_in_one_pass(inputs: Tensor, *, group: ReplicaGroup, wide_dtype: torch.dtype) -> Moments:
    mean, variance = (own.to(wide_dtype) for own in _own_moments(inputs))
    sums = torch.cat([mean.new_ones(1), mean, variance.addcmul(mean, mean)]).mul_(_values_per_channel(inputs))
    group.sum_(sums)
    values = sums[0]
    mean, mean_square = (sums[1:] / values).chunk(2)
    return Moments(values, mean, mean_square.addcmul(mean, mean, value=-1.0).clamp_(min=0.0))


def _moments_in_two_passes(inputs: Tensor, *, group: ReplicaGroup, wide_dtype: torch.dtype) -> Moments:
    samples = inputs.to(_statistics_dtype(inputs))
    axes = [axis for axis in range(inputs.dim()) if axis != 1]
    own_sum = samples.sum(axes).to(wide_dtype)
    sums = torch.cat([own_sum.new_full((1,), _values_per_channel(inputs)), own_sum])
    group.sum_(sums)
    values, mean = sums[0], sums[1:] / sums[0]
    per_channel = [-1 if axis == 1 else 1 for axis in range(inputs.dim())]
    squares = (samples - mean.to(samples.dtype).view(per_channel)).square_().sum(axes).to(wide_dtype)
    group.sum_(squares)
    return Moments(values, mean, squares / values)


def _own_moments(inputs: Tensor) -> tuple[Tensor, Tensor]:
    """The mean and biased variance of this member, by the kernel of plain batch norm."""
    if not is_half(inputs.dtype):
        return torch.batch_norm_update_stats(inputs, None, None, 0.0)
    # The kernel returns statistics in the type of the running ones, or in half precision if there are none.
    unused = torch.zeros(inputs.shape[1], dtype=torch.float32, device=inputs.device)
    return torch.batch_norm_update_stats(inputs, unused, unused.clone(), 0.0)


def _values_per_channel(inputs: Tensor) -> int:
    return inputs.numel() // inputs.shape[1]


def _statistics_dtype(inputs: Tensor) -> torch.dtype:
    return torch.float32 if is_half(inputs.dtype) else inputs.dtype


class ReportingBatchNorm(nn.Module):
    """A batch norm of torch that normalises as before, but leaves running statistics to the owner.

    It is a mixin for torch's classes: a layer keeps its object, attributes and hooks, and `isinstance` holds.
    Without running statistics it uses those of the batch in eval mode too, as torch does. While `recomputing`
    nothing is reported. Over a group, a pass with a `pass_key` keeps the moments for the recomputation of
    that key, which then needs no all-reduce.
    """

    # None in layers without running statistics, whatever the annotations say; no owner updates those.
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor
    weight: nn.Parameter | None
    bias: nn.Parameter | None
    eps: float
    group: ReplicaGroup
    stable: bool
    wide_dtype: torch.dtype
    kept_share: float
    reported: list[tuple[Tensor, Tensor]]
    values_per_image: int | None
    recomputing: bool
    pass_key: Hashable | None
    kept_moments: dict[Hashable, list[Moments]]

    def prepare(
        self, *, kept_share: float, wide_dtype: torch.dtype, group: ReplicaGroup, stable: bool
    ) -> None:
        """Sets what torch's own layer does not have."""
        self.group = group
        self.stable = stable
        self.wide_dtype = wide_dtype
        self.kept_share = kept_share
        self.reported = []
        self.values_per_image = None
        self.recomputing = False
        self.pass_key = None
        self.kept_moments = {}

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
        """The moments of the first pass, in the order in which the layer ran; each is returned once."""
        kept = self.kept_moments.get(self.pass_key, [])
        moments = kept.pop(0) if kept else None
        if not kept:
            self.kept_moments.pop(self.pass_key, None)
        return moments

    def extra_repr(self) -> str:
        channels = self.running_mean.numel() if self.tracks_statistics else "no running statistics"
        return f"{channels}, eps={self.eps}, kept_share={self.kept_share}"


class ReportingInstanceNorm(ReportingBatchNorm):
    """An instance norm of torch that tracks statistics.

    It normalises every image by itself, and reports the means and biased variances averaged over the images.
    """

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return self._evaluated(inputs)
        with torch.no_grad():
            samples = widened(inputs.detach())
            variance, mean = torch.var_mean(samples, dim=tuple(range(2, inputs.dim())), correction=0)
            self._report(mean.mean(0), (variance.mean(0) + self.eps).rsqrt())
        weight, bias = self._scale_and_shift()
        return nn.functional.instance_norm(inputs, None, None, weight, bias, True, 0.0, self.eps)


class _BatchNorm1d(ReportingBatchNorm, nn.BatchNorm1d):  # type: ignore[misc]
    pass


class _BatchNorm2d(ReportingBatchNorm, nn.BatchNorm2d):  # type: ignore[misc]
    pass


class _BatchNorm3d(ReportingBatchNorm, nn.BatchNorm3d):  # type: ignore[misc]
    pass


class _InstanceNorm1d(ReportingInstanceNorm, nn.InstanceNorm1d):  # type: ignore[misc]
    pass


class _InstanceNorm2d(ReportingInstanceNorm, nn.InstanceNorm2d):  # type: ignore[misc]
    pass


class _InstanceNorm3d(ReportingInstanceNorm, nn.InstanceNorm3d):  # type: ignore[misc]
    pass


_CLASS_OF: dict[type[nn.Module], Any] = {
    nn.BatchNorm1d: _BatchNorm1d,
    nn.BatchNorm2d: _BatchNorm2d,
    nn.BatchNorm3d: _BatchNorm3d,
    nn.InstanceNorm1d: _InstanceNorm1d,
    nn.InstanceNorm2d: _InstanceNorm2d,
    nn.InstanceNorm3d: _InstanceNorm3d,
}


def _class_for(norm: _NormBase) -> Any:
    base = norm_base(norm)
    if base is None:
        return _CLASS_OF[type(norm)]
    form = norm_form(norm)
    assert form is not None
    return class_around(type(norm), form, _CLASS_OF[base])


def report_statistics(
    norm: _NormBase,
    *,
    kept_share: float,
    wide_dtype: torch.dtype = torch.float64,
    group: ReplicaGroup = ALONE,
    stable: bool = False,
) -> ReportingBatchNorm:
    """Makes a norm report its statistics; its class must be one of torch's own or have a `norm_form`."""
    norm.__class__ = _class_for(norm)
    assert isinstance(norm, ReportingBatchNorm)
    norm.prepare(kept_share=kept_share, wide_dtype=wide_dtype, group=group, stable=stable)
    return norm
