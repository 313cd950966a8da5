"""Batch norm with one owner: running statistics move once per weight update.

During an update every layer only reports the mean and the biased variance of each micro-batch. The
owner averages them and moves the running statistics: new = kept * old + (1 - kept) * average. Running
statistics are views into two flat tensors, so the move is a few operations however many layers there are.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from drivetrain.errors import BadInputError
from drivetrain.program.modules import replace_modules

_OWNED_TYPES = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class ReportingBatchNorm(nn.Module):
    """Stands in for a torch batch norm; normalises as it does, and leaves the statistics to the owner."""

    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def __init__(self, original: _BatchNorm, *, kept_share: float) -> None:
        super().__init__()
        self.eps = original.eps
        self.kept_share = kept_share
        self.weight = original.weight
        self.bias = original.bias
        for name in ("running_mean", "running_var", "num_batches_tracked"):
            self.register_buffer(name, getattr(original, name))
        self.reported: list[tuple[Tensor, Tensor]] = []
        self.values_per_image: int | None = None

    def forward(self, inputs: Tensor) -> Tensor:
        if not self.training:
            self.values_per_image = inputs.numel() // (inputs.shape[0] * inputs.shape[1])
            return nn.functional.batch_norm(
                inputs, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps
            )
        outputs, mean, inverse_deviation = torch.native_batch_norm(
            inputs, self.weight, self.bias, None, None, True, 0.0, self.eps
        )
        self.reported.append((mean.detach(), inverse_deviation.detach()))
        return outputs

    def extra_repr(self) -> str:
        return f"{self.running_mean.numel()}, eps={self.eps}, kept_share={self.kept_share}"


class BatchNormOwner:
    """Moves the running statistics of all batch norms of a model.

    `unowned` are batch norms of a user's own kind, which keep moving theirs at every micro-batch.
    """

    def __init__(
        self,
        layers: list[ReportingBatchNorm],
        *,
        unowned: Sequence[str] = (),
        wide_dtype: torch.dtype = torch.float64,
    ) -> None:
        self.layers = layers
        self.unowned = tuple(unowned)
        self._wide_dtype = wide_dtype
        if layers:
            self._flatten([layer.running_mean.numel() for layer in layers])

    def _flatten(self, sizes: list[int]) -> None:
        self._means = torch.cat([layer.running_mean for layer in self.layers])
        self._variances = torch.cat([layer.running_var for layer in self.layers])
        views = zip(
            self.layers, torch.split(self._means, sizes), torch.split(self._variances, sizes), strict=True
        )
        for layer, mean, variance in views:
            layer.running_mean = mean
            layer.running_var = variance
        self._eps = self._per_channel([layer.eps for layer in self.layers], sizes)
        moved_share = self._per_channel([1.0 - layer.kept_share for layer in self.layers], sizes)
        self._moved_share = moved_share.to(self._means.dtype)

    @property
    def statistics(self) -> list[Tensor]:
        """The flat running means and variances; none for a model without batch norm."""
        return [self._means, self._variances] if self.layers else []

    def _per_channel(self, values: list[float], sizes: list[int]) -> Tensor:
        widened = torch.tensor(values, dtype=torch.float64).repeat_interleave(torch.tensor(sizes))
        return widened.to(device=self._means.device, dtype=self._wide_dtype)

    @torch.no_grad()
    def commit(self) -> None:
        """Moves every running statistic by what the micro-batches since the last commit reported."""
        num_reports = {len(layer.reported) for layer in self.layers}
        if len(num_reports) == 1 and num_reports != {0}:
            self._move(*self._average_all(num_reports.pop()))
            torch._foreach_add_([layer.num_batches_tracked for layer in self.layers], 1)
        else:
            for layer in self.layers:
                self._move_one(layer)
        self.forget()

    def forget(self) -> None:
        """Drops what was reported, for a pass that must leave no trace."""
        for layer in self.layers:
            layer.reported.clear()

    def _average_all(self, num_reports: int) -> tuple[Tensor, Tensor]:
        means = [torch.cat([layer.reported[i][0] for layer in self.layers]) for i in range(num_reports)]
        inverses = [torch.cat([layer.reported[i][1] for layer in self.layers]) for i in range(num_reports)]
        if num_reports == 1:
            return means[0], self._variance(inverses[0], self._eps)
        variance = self._variance(torch.stack(inverses), self._eps).mean(0)
        return torch.stack(means).to(self._wide_dtype).mean(0), variance

    def _variance(self, inverse_deviation: Tensor, eps: Tensor | float) -> Tensor:
        return inverse_deviation.to(self._wide_dtype).pow(-2).sub_(eps)

    def _move(self, mean: Tensor, variance: Tensor) -> None:
        self._means.lerp_(mean.to(self._means.dtype), self._moved_share)
        self._variances.lerp_(variance.to(self._means.dtype), self._moved_share)

    def _move_one(self, layer: ReportingBatchNorm) -> None:
        """The path of models whose layers do not all run equally often."""
        if not layer.reported:
            return
        mean = torch.stack([report[0] for report in layer.reported]).mean(0)
        variance = self._variance(torch.stack([report[1] for report in layer.reported]), layer.eps).mean(0)
        layer.running_mean.lerp_(mean, 1.0 - layer.kept_share)
        layer.running_var.lerp_(variance.to(mean.dtype), 1.0 - layer.kept_share)
        layer.num_batches_tracked.add_(1)


def install_batch_norm_owner(
    model: nn.Module, *, kept_share: float | None, wide_dtype: torch.dtype = torch.float64
) -> BatchNormOwner:
    """Takes over a model's batch norms; `kept_share` None keeps each layer's own momentum."""
    layers: list[ReportingBatchNorm] = []
    unowned: list[str] = []

    def replacement(name: str, module: nn.Module) -> nn.Module | None:
        if not isinstance(module, _BatchNorm) or module.running_mean is None:
            return None
        if type(module) not in _OWNED_TYPES:
            unowned.append(name)
            return None
        layers.append(ReportingBatchNorm(module, kept_share=_kept_share(name, module, kept_share)))
        return layers[-1]

    replace_modules(model, replacement)
    return BatchNormOwner(layers, unowned=unowned, wide_dtype=wide_dtype)


def check_normalised_values(owner: BatchNormOwner, *, micro_batch_size: int) -> None:
    """Refuses a batch norm that would normalise a single value per channel; call after an evaluation pass."""
    for layer in owner.layers:
        if layer.values_per_image is not None and layer.values_per_image * micro_batch_size < 2:
            raise BadInputError(
                f"--micro-batch-size {micro_batch_size} gives a batch norm of --model one value per "
                f"channel to normalise; --micro-batch-size {micro_batch_size + 1} works."
            )


def _kept_share(name: str, module: _BatchNorm, asked: float | None) -> float:
    if asked is not None:
        return asked
    if module.momentum is None:
        raise BadInputError(
            f"--model's batch norm {name} has momentum None; --bn-momentum 0.97 would set one."
        )
    return 1.0 - module.momentum
