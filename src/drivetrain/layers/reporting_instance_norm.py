"""The instance norm of a model in training whose running statistics have an owner."""

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase

from drivetrain.layers.reporting_batch_norm import ReportingBatchNorm
from drivetrain.models.half_weights import widened

__all__ = ["ReportingInstanceNorm"]


class ReportingInstanceNorm(ReportingBatchNorm):
    """Stands in for a torch instance norm that tracks statistics.

    It normalises every image by itself and reports the mean over the images of their means and biased
    variances.
    """

    def __init__(self, original: _NormBase) -> None:
        # Torch never moves the statistics of an instance norm without a momentum.
        moved = 0.0 if original.momentum is None else original.momentum
        super().__init__(original, kept_share=1.0 - moved, wide_dtype=torch.float64)

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            return self._evaluated(inputs)
        with torch.no_grad():
            samples = widened(inputs.detach())
            variance, mean = torch.var_mean(samples, dim=tuple(range(2, inputs.dim())), correction=0)
            self._report(mean.mean(0), (variance.mean(0) + self.eps).rsqrt())
        weight, bias = self._scale_and_shift()
        return nn.functional.instance_norm(inputs, None, None, weight, bias, True, 0.0, self.eps)
