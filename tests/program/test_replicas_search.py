"""A search for a cut that changes the result: any micro-batch, accumulation, replicas and group."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.cluster.pool import RankPool
from drivetrain.cluster.replica_group import ReplicaGroup
from drivetrain.models.create import create_model
from drivetrain.tasks.segmentation import SegmentationTask

from .harness import GivenFeed, make_program, worst_error

MODELS = ("cifar_resnet8", "unet_same")
TOLERANCES = {torch.float32: (1e-5, 1e-5), torch.float64: (1e-10, 1e-8)}
UPDATES = 10


@dataclass(frozen=True)
class Cut:
    """A layout; what batch norm normalises together is micro x group."""

    micro: int
    accumulation: int
    replicas: int
    group: int

    @property
    def global_batch(self) -> int:
        return self.micro * self.accumulation * self.replicas

    @property
    def normalised(self) -> int:
        return self.micro * self.group


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    replicas = draw(st.sampled_from([1, 2, 4]))
    return Cut(
        # Batch norm over a single sample is a lottery of rounding: no cut can repeat it in float32.
        micro=draw(st.sampled_from([2, 4])),
        accumulation=draw(st.integers(1, 3)),
        replicas=replicas,
        group=draw(st.sampled_from([size for size in (1, 2, 4) if replicas % size == 0])),
    )


def _samples(name: str, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    images = torch.rand(count, 3, 8, 8, generator=generator, dtype=torch.float64).to(dtype)
    if name == "unet_same":
        return images, torch.randint(0, 2, (count, 8, 8, 1), generator=generator, dtype=torch.uint8)
    return images, torch.randint(0, 10, (count,), generator=generator)


def _measured(
    group: ReplicaGroup, name: str, dtype: torch.dtype, cut: Cut
) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Gradients of the first update, and the losses of ten."""
    params: dict[str, Any] = {"width": 2, "depth": 2, "norm": "batch", "dropout": 0.25}
    is_unet = name == "unet_same"
    model = create_model(
        name, channels=3, image_size=8, num_classes=2 if is_unet else 10, **(params if is_unet else {})
    ).to(dtype)
    feed = GivenFeed(*_samples(name, cut.global_batch, dtype), micro=cut.micro, group=group)
    task = SegmentationTask(num_classes=2) if is_unet else None
    # Two passes over the samples: the plain float32 kernel of channels_last is itself near the tolerance.
    program = make_program(
        model, feed, rate=0.001, task=task, norm_group_size=cut.group, stable=dtype == torch.float32
    )
    program.model.train()
    program.run_update(0)
    views = program.parameters.named_views(program.parameters.gradients)
    gradients = {key: value.double().numpy().copy() for key, value in views}
    for update in range(1, UPDATES):
        program.run_update(update)
    return gradients, program.records.read("loss", 0, UPDATES)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("name", MODELS)
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(cut=cuts())
def test_no_cut_changes_the_result(rank_pool: RankPool, name: str, dtype: torch.dtype, cut: Cut) -> None:
    whole = Cut(micro=cut.normalised, accumulation=cut.global_batch // cut.normalised, replicas=1, group=1)
    # In a rank too: another number of threads rounds otherwise.
    gradients, losses = rank_pool.run(_measured, name, dtype, whole, ranks=1)[0]
    gradient_tolerance, loss_tolerance = TOLERANCES[dtype]
    for others, other_losses in rank_pool.run(_measured, name, dtype, cut, ranks=cut.replicas):
        assert worst_error(gradients, others) <= gradient_tolerance, cut
        assert np.abs(losses - other_losses).max() <= loss_tolerance, cut
    spoilt = {key: value * 1.001 for key, value in gradients.items()}
    assert worst_error(gradients, spoilt) > gradient_tolerance
