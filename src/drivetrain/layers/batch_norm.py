"""Batch norms with one owner, which updates all running statistics once per weight update.

During an update every layer only reports the mean and the biased variance of each micro-batch. The owner
averages them and updates the running statistics: new = kept * old + (1 - kept) * average. The result does not
depend on how often or on which rank micro-batches run, and a recomputed pass does not count twice. Running
statistics are views into two flat tensors, so an update is a few operations for any number of layers.
"""

from collections.abc import Container, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TypeGuard

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm, _NormBase
from torch.nn.modules.instancenorm import _InstanceNorm

from drivetrain.core.errors import BadInputError
from drivetrain.layers.reporting_batch_norm import (
    ReportingBatchNorm,
    ReportingInstanceNorm,
    report_statistics,
)
from drivetrain.models.batch_norm_classes import norm_form
from drivetrain.models.freeze import FrozenBatchNorm, idle_freeze_norm
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.recipe.schema import Recipe

__all__ = [
    "BatchNormOwner",
    "check_normalised_values",
    "idle_norm_options",
    "install_batch_norm_owner",
    "norm_options",
]

_OWNED_INSTANCE_NORMS = (nn.InstanceNorm1d, nn.InstanceNorm2d, nn.InstanceNorm3d)


class BatchNormOwner:
    """Updates the running statistics of all batch norms of a model, and of instance norms that have some.

    `untracked` are batch norms without running statistics over a group of replicas. `unowned` are the names
    of custom norm classes, which still update their statistics at every micro-batch.
    """

    def __init__(
        self,
        layers: list[ReportingBatchNorm],
        *,
        untracked: Sequence[ReportingBatchNorm] = (),
        unowned: Sequence[str] = (),
        wide_dtype: torch.dtype = torch.float64,
        device: torch.device | None = None,
    ) -> None:
        self.layers = layers
        self.all_layers = (*layers, *untracked)
        self.unowned = tuple(unowned)
        self._wide_dtype = wide_dtype
        self._device = device
        self.can_undo = False
        self._before: list[Tensor] = []
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
        layer_of_channel = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
        self._layer_of_channel = layer_of_channel.to(self._means.device)

    @property
    def batch_norms(self) -> list[ReportingBatchNorm]:
        """The layers that normalise over several samples, of one replica or of a group."""
        return [layer for layer in self.all_layers if not isinstance(layer, ReportingInstanceNorm)]

    @property
    def statistics(self) -> list[Tensor]:
        """The flat running means and variances; none for a model without batch norm."""
        return [self._means, self._variances] if self.layers else []

    def _per_channel(self, values: list[float], sizes: list[int]) -> Tensor:
        widened = torch.tensor(values, dtype=torch.float64).repeat_interleave(torch.tensor(sizes))
        return widened.to(device=self._means.device, dtype=self._wide_dtype)

    @torch.no_grad()
    def commit(self) -> None:
        """Updates the running statistics from the reports since the last commit."""
        self._keep()
        num_reports = {len(layer.reported) for layer in self.layers}
        if len(num_reports) == 1 and num_reports != {0}:
            self._move(*self._average_all(num_reports.pop()), self._moved_share)
            torch._foreach_add_([layer.num_batches_tracked for layer in self.layers], 1)
        else:
            for layer in self.layers:
                self._move_one(layer)
        self.forget()

    @torch.no_grad()
    def report_sums(self) -> Tensor:
        """The reports since the last commit as one vector, which replicas can all-reduce.

        It holds the number of reports per layer, then the summed mean and the summed variance per channel.
        """
        if not self.layers:
            return torch.zeros(0, dtype=self._wide_dtype, device=self._device)
        counts = [len(layer.reported) for layer in self.layers]
        if min(counts) == max(counts) > 0:
            means, inverses = self._stacked(counts[0])
            sums = [means.to(self._wide_dtype).sum(0), self._variance(inverses, self._eps).sum(0)]
        else:
            sums = [torch.cat(parts) for parts in zip(*map(self._summed, self.layers), strict=True)]
        return torch.cat([sums[0].new_tensor(counts), *sums])

    @torch.no_grad()
    def commit_sums(self, sums: Tensor) -> None:
        """`commit` from the all-reduced `report_sums`; layers that no replica ran do not change."""
        if not self.layers:
            return
        self._keep()
        channels = len(self._means)
        counts, means, variances = torch.split(sums, [len(self.layers), channels, channels])
        ran = counts.clamp(max=1.0)
        divisor = counts.clamp(min=1.0)[self._layer_of_channel]
        share = self._moved_share * ran[self._layer_of_channel].to(self._means.dtype)
        self._move(means / divisor, variances / divisor, share)
        tracked = [layer.num_batches_tracked for layer in self.layers]
        torch._foreach_add_(tracked, list(ran.to(tracked[0].dtype).unbind()))
        self.forget()

    @torch.no_grad()
    def undo_where(self, flag: Tensor) -> None:
        """Undoes the last commit if a flag on the device is set; needs `can_undo`."""
        if not self.layers:
            return
        *statistics, tracked = [
            torch.where(flag, before, now) for before, now in zip(self._before, self._movable(), strict=True)
        ]
        for target, value in zip(self.statistics, statistics, strict=True):
            target.copy_(value)
        torch._foreach_copy_([layer.num_batches_tracked for layer in self.layers], list(tracked.unbind()))

    def _keep(self) -> None:
        if self.can_undo and self.layers:
            self._before = [tensor.clone() for tensor in self._movable()]

    def _movable(self) -> list[Tensor]:
        """The tensors that a commit changes."""
        return [*self.statistics, torch.stack([layer.num_batches_tracked for layer in self.layers])]

    def forget(self) -> None:
        """Drops all reports, for a pass that must not affect the statistics."""
        for layer in self.all_layers:
            layer.reported.clear()
            layer.kept_moments.clear()

    @contextmanager
    def reporting_from_nothing(self) -> Iterator[None]:
        """Hides earlier reports inside the block, and drops its own if it fails.

        torch.compile guards on the length of the list of reports: it would compile again for every further
        micro-batch of an update.
        """
        earlier = [layer.reported for layer in self.layers]
        for layer in self.layers:
            layer.reported = []
        try:
            yield
        except BaseException:
            for layer, reported in zip(self.layers, earlier, strict=True):
                layer.reported = reported
            raise
        for layer, reported in zip(self.layers, earlier, strict=True):
            layer.reported = reported + layer.reported

    @contextmanager
    def to_be_recomputed(self, key: Hashable) -> Iterator[None]:
        """A first pass that `recomputing(key)` will repeat: layers keep their all-reduced moments."""
        with self._in_pass(key, recomputing=False):
            yield

    @contextmanager
    def recomputing(self, key: Hashable | None = None) -> Iterator[None]:
        """A pass that repeats an earlier one: it reports nothing, so that statistics count once.

        Layers over a group reuse the moments that the first pass kept under `key`. Without them they repeat
        the all-reduce, and then all members of the group must recompute in the same order.
        """
        with self._in_pass(key, recomputing=True):
            yield

    @contextmanager
    def _in_pass(self, key: Hashable | None, *, recomputing: bool) -> Iterator[None]:
        before = [(layer.pass_key, layer.recomputing) for layer in self.all_layers]
        for layer in self.all_layers:
            layer.pass_key, layer.recomputing = key, recomputing
        try:
            yield
        finally:
            for layer, state in zip(self.all_layers, before, strict=True):
                layer.pass_key, layer.recomputing = state

    def _stacked(self, num_reports: int) -> tuple[Tensor, Tensor]:
        """The reported means and inverse standard deviations of all layers, a row per report."""
        means = [torch.cat([layer.reported[i][0] for layer in self.layers]) for i in range(num_reports)]
        inverses = [torch.cat([layer.reported[i][1] for layer in self.layers]) for i in range(num_reports)]
        return torch.stack(means), torch.stack(inverses)

    def _average_all(self, num_reports: int) -> tuple[Tensor, Tensor]:
        means, inverses = self._stacked(num_reports)
        variances = self._variance(inverses, self._eps)
        if num_reports == 1:
            return means[0], variances[0]
        return means.to(self._wide_dtype).mean(0), variances.mean(0)

    def _summed(self, layer: ReportingBatchNorm) -> tuple[Tensor, Tensor]:
        if not layer.reported:
            nothing = torch.zeros_like(layer.running_mean, dtype=self._wide_dtype)
            return nothing, nothing
        means, inverses = (torch.stack(part) for part in zip(*layer.reported, strict=True))
        return means.to(self._wide_dtype).sum(0), self._variance(inverses, layer.eps).sum(0)

    def _variance(self, inverse_deviation: Tensor, eps: Tensor | float) -> Tensor:
        return inverse_deviation.to(self._wide_dtype).pow(-2).sub_(eps)

    def _move(self, mean: Tensor, variance: Tensor, share: Tensor) -> None:
        self._means.lerp_(mean.to(self._means.dtype), share)
        self._variances.lerp_(variance.to(self._means.dtype), share)

    def _move_one(self, layer: ReportingBatchNorm) -> None:
        """The slow path, for models whose layers do not all run equally often."""
        if not layer.reported:
            return
        mean = torch.stack([report[0] for report in layer.reported]).mean(0).to(layer.running_mean.dtype)
        variance = self._variance(torch.stack([report[1] for report in layer.reported]), layer.eps).mean(0)
        layer.running_mean.lerp_(mean, 1.0 - layer.kept_share)
        layer.running_var.lerp_(variance.to(mean.dtype), 1.0 - layer.kept_share)
        layer.num_batches_tracked.add_(1)


def install_batch_norm_owner(
    model: nn.Module,
    *,
    kept_share: float | None,
    wide_dtype: torch.dtype = torch.float64,
    group: ReplicaGroup = ALONE,
    stable: bool = False,
    only: Container[str] | None = None,
) -> BatchNormOwner:
    """Takes over a model's batch norms and tracking instance norms, or those named in `only`.

    `kept_share` None keeps the momentum of each batch norm; instance norms always keep theirs. `group` are
    the replicas whose samples are normalised together; all must run the same micro-batches. `stable` computes
    the statistics in two passes, at least in float32.
    """
    layers: list[ReportingBatchNorm] = []
    untracked: list[ReportingBatchNorm] = []
    unowned: list[str] = []
    changes_untracked = group.size > 1 or stable

    for name, module in model.named_modules():
        is_other = only is not None and name not in only
        if is_other or not name or not _is_to_own(module):
            continue
        tracks = module.running_mean is not None
        if type(module) in _OWNED_INSTANCE_NORMS and tracks:
            layers.append(report_statistics(module, kept_share=_kept_by_instance_norm(module)))
        elif norm_form(module) is None:
            unowned.extend([name] if tracks or _misses_group(module, group) else [])
        elif tracks or changes_untracked:
            share = _kept_share(name, module, kept_share) if tracks else 1.0
            layer = report_statistics(
                module, kept_share=share, wide_dtype=wide_dtype, group=group, stable=stable
            )
            (layers if tracks else untracked).append(layer)
    device = next((tensor.device for tensor in chain(model.parameters(), model.buffers())), None)
    return BatchNormOwner(layers, untracked=untracked, unowned=unowned, wide_dtype=wide_dtype, device=device)


def _is_to_own(module: nn.Module) -> TypeGuard[_NormBase]:
    return isinstance(module, _BatchNorm | _InstanceNorm) and not isinstance(module, FrozenBatchNorm)


def _kept_by_instance_norm(module: _NormBase) -> float:
    # torch never updates the statistics of an instance norm whose momentum is None.
    return 1.0 if module.momentum is None else 1.0 - module.momentum


def _misses_group(module: nn.Module, group: ReplicaGroup) -> bool:
    return isinstance(module, _BatchNorm) and group.size > 1


def check_normalised_values(owner: BatchNormOwner, *, micro_batch_size: int) -> None:
    """Refuses a batch norm with a single value per channel; call it after a pass in eval mode."""
    for layer in owner.batch_norms:
        samples = micro_batch_size * layer.group.size
        if layer.values_per_image is not None and layer.values_per_image * samples < 2:
            raise BadInputError(
                f"--micro-batch-size {micro_batch_size} leaves a batch norm of --model only one value "
                f"per channel to normalise; --micro-batch-size {micro_batch_size + 1} works."
            )


def _kept_share(name: str, module: _NormBase, asked: float | None) -> float:
    if asked is not None:
        return asked
    if module.momentum is None:
        raise BadInputError(
            f"--model's batch norm {name} has momentum None, not a number; --bn-momentum 0.97 sets one."
        )
    return 1.0 - module.momentum


def idle_norm_options(recipe: Recipe, model: nn.Module) -> list[str]:
    """Warnings about batch-norm options without effect; the model must still have its original layers."""
    norms = [module for module in model.modules() if _is_to_own(module) and norm_form(module) is not None]
    idle = idle_freeze_norm(recipe.freeze_norm, model)
    if not norms:
        return idle + [
            f"{option} has no effect: --model {recipe.model} has no trainable batch norm."
            for option in norm_options(recipe)
        ]
    if recipe.bn_momentum is None or any(module.running_mean is not None for module in norms):
        return idle
    idle.append(
        f"--bn-momentum {recipe.bn_momentum} has no effect: no batch norm of --model {recipe.model} has "
        "running statistics."
    )
    return idle


def norm_options(recipe: Recipe) -> list[str]:
    """The batch-norm options that the user gave, as they are written."""
    asked = {
        f"--bn-momentum {recipe.bn_momentum}": recipe.bn_momentum is not None,
        "--stable-norm True": recipe.stable_norm,
        f"--dbn-replica-group-size {recipe.dbn_replica_group_size}": recipe.dbn_replica_group_size > 1,
    }
    return [option for option, is_asked in asked.items() if is_asked]
