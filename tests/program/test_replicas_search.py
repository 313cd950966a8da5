"""A search for a cut that changes the result: any micro-batch, accumulation, replicas and group."""

from dataclasses import dataclass, replace
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.models.create import create_model
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.tasks.segmentation import SegmentationTask
from drivetrain.verify.measure import Starts
from tests.program.harness import GivenFeed, make_program, worst_error

MODELS = ("cifar_resnet8", "unet_same")
TOLERANCES = {torch.float32: (1e-5, 1e-5), torch.float64: (1e-10, 1e-8)}
UPDATES = 3


@dataclass(frozen=True)
class Cut:
    """A layout; what batch norm normalises together is micro x group.

    With `overlaps`, gradients are summed beside the last backward pass.
    """

    micro: int
    accumulation: int
    replicas: int
    group: int
    overlaps: bool = False

    @property
    def global_batch(self) -> int:
        return self.micro * self.accumulation * self.replicas

    @property
    def normalised(self) -> int:
        return self.micro * self.group

    @property
    def alone(self) -> "Cut":
        """One process that normalises the same samples together."""
        parts = self.global_batch // self.normalised
        return Cut(micro=self.normalised, accumulation=parts, replicas=1, group=1)


@st.composite
def cuts(draw: st.DrawFn) -> Cut:
    """Several replicas always: what one process has to agree with is itself."""
    replicas = draw(st.integers(2, 4))
    group = draw(st.sampled_from([size for size in range(1, replicas + 1) if replicas % size == 0]))
    # Batch norm over a single sample is a lottery of rounding: no cut can repeat it in float32.
    micro = draw(st.integers(2 if group == 1 else 1, 4))
    return Cut(
        micro=micro,
        accumulation=draw(st.integers(1, 3)),
        replicas=replicas,
        group=group,
        overlaps=draw(st.booleans()),
    )


def _samples(name: str, count: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(7)
    images = torch.rand(count, 3, 8, 8, generator=generator, dtype=torch.float64).to(dtype)
    if name == "unet_same":
        return images, torch.randint(0, 2, (count, 8, 8, 1), generator=generator, dtype=torch.uint8)
    return images, torch.randint(0, 10, (count,), generator=generator)


def _measured(
    group: ReplicaGroup, name: str, dtype: torch.dtype, cut: Cut, starts: Starts
) -> tuple[dict[str, NDArray[Any]], NDArray[Any]]:
    """Gradients of the first update, and the losses of a few, each from the state it has to start from."""
    params: dict[str, Any] = {"width": 2, "depth": 2, "norm": "batch", "dropout": 0.25}
    is_unet = name == "unet_same"
    model = create_model(
        name, channels=3, image_size=8, num_classes=2 if is_unet else 10, **(params if is_unet else {})
    ).to(dtype)
    feed = GivenFeed(*_samples(name, cut.global_batch, dtype), micro=cut.micro, group=group)
    task = SegmentationTask(num_classes=2) if is_unet else None
    program = make_program(
        model,
        feed,
        rate=0.001,
        task=task,
        norm_group_size=cut.group,
        overlaps=cut.overlaps,
        # Two passes over the samples: the plain float32 kernel of channels_last is itself near the tolerance.
        stable=dtype == torch.float32,
    )
    program.model.train()
    gradients: dict[str, NDArray[Any]] = {}
    for update in range(UPDATES):
        starts.begin(program, update)
        program.run_update(update)
        if update == 0:
            views = program.parameters.named_views(program.parameters.gradients)
            gradients = {key: value.double().numpy().copy() for key, value in views}
    return gradients, program.records.read("loss", 0, UPDATES)


def _errors(
    pool: RankPool, name: str, dtype: torch.dtype, cut: Cut, *, against: Cut
) -> list[tuple[float, float]]:
    """How far gradients and losses of each rank lie from those of one process."""
    with TemporaryDirectory() as folder:
        lead, follow = (Starts(folder=folder, leads=leads) for leads in (True, False))
        # In a rank too: another number of threads rounds otherwise.
        gradients, losses = pool.run(_measured, name, dtype, against, lead, ranks=1)[0]
        found = pool.run(_measured, name, dtype, cut, follow, ranks=cut.replicas)
    return [
        (worst_error(gradients, others), float(np.abs(losses - other_losses).max()))
        for others, other_losses in found
    ]


@pytest.mark.parametrize("name", MODELS)
@settings(
    max_examples=8,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(cut=cuts(), dtype=st.sampled_from(list(TOLERANCES)))
@example(cut=Cut(micro=4, accumulation=1, replicas=2, group=1), dtype=torch.float32)
@example(cut=Cut(micro=1, accumulation=3, replicas=4, group=4), dtype=torch.float64)
@example(cut=Cut(micro=3, accumulation=2, replicas=4, group=2, overlaps=True), dtype=torch.float32)
@example(cut=Cut(micro=2, accumulation=2, replicas=3, group=3), dtype=torch.float64)
def test_no_cut_changes_the_result(rank_pool: RankPool, name: str, dtype: torch.dtype, cut: Cut) -> None:
    if dtype == torch.float32:
        # A group adds up moments in parts: in float32 that may move a value past the kink of a ReLU.
        cut = replace(cut, micro=max(cut.micro, 2), group=1)
    gradient_tolerance, loss_tolerance = TOLERANCES[dtype]
    for gradient_error, loss_error in _errors(rank_pool, name, dtype, cut, against=cut.alone):
        assert gradient_error <= gradient_tolerance, cut
        assert loss_error <= loss_tolerance, cut


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(
    "wrong",
    [
        {"group": 1},
        {"group": 4},
        {"micro": 4, "accumulation": 1},
    ],
    ids=["no group", "larger group", "larger micro-batch"],
)
def test_negative_control_other_normalised_sets_change_it(
    rank_pool: RankPool, name: str, wrong: dict[str, Any]
) -> None:
    cut = Cut(micro=2, accumulation=2, replicas=4, group=2)
    other = replace(cut, **wrong)
    assert other.global_batch == cut.global_batch
    for gradient_error, _ in _errors(rank_pool, name, torch.float64, other, against=cut.alone):
        assert gradient_error > 1e-3
