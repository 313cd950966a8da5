"""Loss scaling that finds its own factor: skipped updates change nothing, and nothing is fetched."""

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from drivetrain.assembly import program as build_module
from drivetrain.passes.loss_scale import SMALLEST_SCALE, DynamicLossScale
from drivetrain.program.averaging import WeightAverage
from drivetrain.program.gradient_rules import GradientRules
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.params import LARGEST_LOSS_SCALE
from tests.pipeline.rank_programs import Job, build
from tests.program.harness import CPU, GivenFeed, SquaredError, make_program
from tests.program.precise import FLOAT32, HALF, MIXED, Weight, precise_program


def _scale(first: float = 2.0**15, *, updates_to_growth: int = 2000) -> DynamicLossScale:
    return DynamicLossScale(CPU, first=first, updates_to_growth=updates_to_growth)


def _course(scale: DynamicLossScale, bad: list[bool]) -> list[float]:
    factors = []
    for is_bad in bad:
        scale.judge(torch.tensor(is_bad))
        scale.move()
        factors.append(scale.scale.item())
    return factors


def test_it_halves_at_once_and_doubles_after_good_updates_in_a_row() -> None:
    scale = _scale(8.0, updates_to_growth=3)
    assert _course(scale, [False, False, True, False, False, False, False]) == [8, 8, 4, 4, 4, 8, 8]
    assert scale.good_updates.item() == 1


def test_it_stays_between_its_bounds() -> None:
    assert (
        _course(_scale(LARGEST_LOSS_SCALE, updates_to_growth=1), [False, False]) == [LARGEST_LOSS_SCALE] * 2
    )
    lowest = _course(_scale(SMALLEST_SCALE), [True, True, True])
    assert lowest == [SMALLEST_SCALE / 2] * 3


@pytest.mark.parametrize("precision", [FLOAT32, MIXED, HALF], ids=["32.32", "16.32", "16.16"])
def test_a_factor_that_fits_changes_nothing(precision: Any) -> None:
    weights = []
    for scale in (None, _scale(1024.0)):
        model = Weight(2.0)
        program = precise_program(model, torch.full((4, 1), 0.5), precision=precision, scale=scale, micro=2)
        for update in range(3):
            program.run_update(update)
        weights.append(model.weight.item())
    assert weights[0] == weights[1] != 2.0


def test_gradients_too_small_for_float16_come_through() -> None:
    """A gradient below half of the smallest float16 number is 0 without a factor."""
    moved = []
    for scale in (None, _scale()):
        model = Weight(0.0)
        images = torch.full((1, 1), 2.0**-10)
        program = precise_program(model, images, precision=HALF, scale=scale, rate=2.0**8, task=_Tiny())
        program.run_update(0)
        moved.append(model.weight.item())
    assert moved[0] == 0.0
    assert moved[1] == -(2.0**-28) * 2.0**8


class _Tiny:
    """The loss is the output times 2**-18."""

    metric = "accuracy"

    def losses_and_scores(self, outputs: Tensor, _targets: Tensor) -> tuple[Tensor, Tensor]:
        losses = outputs.float().flatten() * 2.0**-18
        return losses, losses.detach()


class _Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(2)
        self.head = nn.Linear(2, 1)

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.norm(images).mean((2, 3)))
        return outputs


@pytest.mark.parametrize("precision", [MIXED, HALF], ids=["16.32", "16.16"])
def test_a_skipped_update_leaves_everything_as_it_was(precision: Any) -> None:
    torch.manual_seed(0)
    model = _Normed()
    images = torch.randn(8, 2, 3, 3)
    # So large that gradients overflow in float16, while the loss is an ordinary number.
    scale = _scale(2.0**24)
    program = precise_program(
        model,
        images,
        precision=precision,
        scale=scale,
        task=SquaredError(),
        recipe={"optimizer_params": {"momentum": 0.9}, "weight_decay": 0.1},
        rate=0.1,
    )
    program.mover.average = WeightAverage(
        [program.parameters.values, *program.batch_norms.statistics], kept_share=0.9
    )
    state = {
        "values": program.parameters.values,
        "velocity": program.mover.optimiser.states["velocity"],
        **{f"average {i}": tensor for i, tensor in enumerate(program.mover.average.averages)},
        **dict(model.named_buffers()),
    }
    before = {name: tensor.clone() for name, tensor in state.items()}
    program.run_update(0)
    assert {name for name, tensor in state.items() if not torch.equal(tensor, before[name])} == set()
    assert program.records.read("skipped", 0, 1)[0] == 1
    assert np.isfinite(program.records.read("loss", 0, 1)[0])
    update = 1
    while scale.skips:
        program.run_update(update)
        update += 1
    changed = {name for name, tensor in state.items() if not torch.equal(tensor, before[name])}
    assert changed == set(state)
    assert program.records.read("loss_scale", 0, 3).tolist() == [2.0**24, 2.0**23, 2.0**22]
    assert scale.scale.item() == 2.0 ** (25 - update)


def test_without_a_dynamic_factor_such_an_update_ruins_the_weights() -> None:
    """The negative control."""
    model = Weight(1.0)
    feed = GivenFeed(torch.full((1, 1), 1e30), torch.zeros(1), micro=1)
    rules = GradientRules(loss_scaling=2.0**24)
    make_program(model, feed, task=SquaredError(), rules=rules).run_update(0)
    assert not model.weight.isfinite().all()


def test_one_trace_serves_all_updates() -> None:
    """The factor, the judgement and the skip are tensors, with no number of the data in the program."""
    scale = _scale(4.0, updates_to_growth=2)

    def step(gradient: Tensor) -> Tensor:
        scale.judge(~torch.isfinite(gradient).all())
        scale.take_out_(gradient)
        scale.move()
        return gradient

    traced = torch.fx.experimental.proxy_tensor.make_fx(step)(torch.ones(3))
    assert not any("_local_scalar_dense" in str(node.target) for node in traced.graph.nodes)


def _overflowing(group: ReplicaGroup, job: Job) -> tuple[list[float], list[float], float, bool]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build_module, "DynamicLossScale", partial(DynamicLossScale, first=2.0**24))
        program = build(group, job).program
    before = program.parameters.values.clone()
    program.model.train()
    program.run_update(0)
    is_still = torch.equal(program.parameters.values, before)
    for update in range(1, job.updates):
        program.run_update(update)
    records = program.records
    assert program.mover.loss_scale is not None
    return (
        records.read("skipped", 0, job.updates).tolist(),
        records.read("loss", 0, job.updates).tolist(),
        program.mover.loss_scale.scale.item(),
        is_still,
    )


def test_replicas_and_stages_agree_on_what_is_skipped(rank_pool: RankPool) -> None:
    options = {"precision": "16.16", "half_type": "float16", "loss_scaling": "dynamic"}
    alone = _overflowing(
        ReplicaGroup(), Job(kind="cifar_resnet8", options=options, dtype=torch.float32, updates=8)
    )
    skipped, losses, scale, is_still = alone
    assert (skipped[0], skipped[-1], is_still) == (1, 0, True)
    assert scale == 2.0 ** (24 - sum(skipped))
    for cut in ({"replicas": 2}, {"stages": 2}):
        job = Job(kind="cifar_resnet8", options={**options, **cut}, dtype=torch.float32, updates=8)
        for found in rank_pool.run(_overflowing, job, ranks=2):
            assert (found[0], found[2], found[3]) == (skipped, scale, True)
            # Skipped updates move nothing, so that all up to the one after the first that counts start alike.
            first = skipped.index(0) + 2
            assert np.abs(np.subtract(found[1], losses))[:first].max() < 0.02
