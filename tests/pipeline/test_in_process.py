"""Any cut of four models, under every schedule, computes what the model in one piece computes."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.pipeline.runtime.placed_stages import PipelinePasses
from drivetrain.schedules.by_name import SCHEDULE_NAMES
from drivetrain.schedules.checker import live_micro_batches
from drivetrain.schedules.traffic import messages
from tests.pipeline.staged import (
    KINDS,
    MICRO_BATCHES,
    Outcome,
    laid_out,
    reference_of,
    statistics_error,
    subject_of,
)
from tests.program.harness import worst_error

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
# Replicas, and the device of each stage.
LAYOUTS = (
    (1, (0, 1)),
    (1, (0, 1, 2, 3)),
    (1, (0, 1, 1, 0)),
    (1, (0, 1, 0, 1)),
    (2, (0, 1)),
    (2, (0, 1, 1, 0)),
    (2, (0, 1, 0, 1)),
)
FOUR = (0, 1, 2, 3)


def _plan_of(name: str, dtype: torch.dtype, device_of: tuple[int, ...], **layout: Any) -> StagePlan:
    plans = {plan.stages: plan for plan in subject_of(name, dtype).plans}
    return laid_out(plans[len(device_of)], device_of=device_of, **layout)


def _is_right(name: str, dtype: torch.dtype, found: Outcome) -> bool:
    expected = reference_of(name, dtype)
    return (
        worst_error(expected.gradients, found.gradients) <= TOLERANCE[dtype]
        and expected.reports == found.reports
        and statistics_error(expected.statistics, found.statistics) <= TOLERANCE[dtype] / 100
        and abs(found.loss - expected.loss) <= TOLERANCE[dtype]
    )


def _check_layout(
    name: str, dtype: torch.dtype, *, replicas: int, device_of: tuple[int, ...], **layout: Any
) -> None:
    plan = _plan_of(name, dtype, device_of, **layout)
    found = subject_of(name, dtype).staged(plan, replicas=replicas)
    assert _is_right(name, dtype, found)
    if replicas == 1:
        # All add up micro-batches in their order, and what several stages read as autograd would.
        expected = reference_of(name, dtype).gradients
        assert all(np.array_equal(expected[key], found.gradients[key]) for key in expected)
    schedule = plan.schedule(MICRO_BATCHES // replicas)
    assert found.largest_live == (dict(enumerate(live_micro_batches(schedule))),) * replicas
    bytes_of = {value: info.num_bytes for value, info in plan.shapes.values.items()}
    traffic = messages(schedule, found.edges)
    planned = sum(traffic.bytes_from_stage(stage, bytes_of=bytes_of) for stage in range(schedule.stages))
    assert found.bytes_sent == (planned,) * replicas


@pytest.mark.parametrize("recomputes", [False, True], ids=["kept", "recomputed"])
@pytest.mark.parametrize("schedule", SCHEDULE_NAMES)
@pytest.mark.parametrize("name", KINDS)
def test_every_layout_computes_what_one_piece_does(name: str, schedule: str, recomputes: bool) -> None:
    for replicas, device_of in LAYOUTS:
        _check_layout(
            name,
            torch.float64,
            replicas=replicas,
            device_of=device_of,
            schedule=schedule,
            recomputes=recomputes,
        )


@pytest.mark.parametrize("schedule", ["1f1b", "zero-bubble"])
@pytest.mark.parametrize("name", KINDS)
def test_in_float32_too(name: str, schedule: str) -> None:
    _check_layout(name, torch.float32, replicas=1, device_of=(0, 1, 1, 0), schedule=schedule)
    _check_layout(name, torch.float32, replicas=2, device_of=(0, 1), schedule=schedule, recomputes=True)


def test_the_cuts_have_skips_with_several_readers_and_over_several_stages() -> None:
    found = set()
    for name in KINDS:
        for plan in subject_of(name, torch.float64).plans:
            edges = plan.cut().edges
            readers = [edge.value for edge in edges]
            found |= {(name, "two readers") for value in readers if readers.count(value) > 1}
            found |= {(name, "far") for edge in edges if edge.consumer - edge.producer > 1}
    assert found == {
        ("resnet18", "two readers"),
        ("resnet18", "far"),
        ("unet", "far"),
        ("unet_same", "two readers"),
        ("unet_same", "far"),
    }


def test_a_gradient_a_thousandth_too_long_is_noticed() -> None:
    expected = reference_of("unet_same", torch.float64)
    for name in expected.gradients:
        spoilt = {**expected.gradients, name: expected.gradients[name] * 1.001}
        assert not _is_right("unet_same", torch.float64, replace(expected, gradients=spoilt))


def _without_gradient(value: str, consumer: int) -> Any:
    """Takes one edge's gradient away before its producer sees it."""

    def change(passes: PipelinePasses) -> None:
        executor = passes.executor
        collected = executor._collected

        def collect(action: Any) -> dict[str, list[Tensor]]:
            executor._gradients.pop((value, action.micro_batch, consumer), None)
            return collected(action)

        executor._collected = collect  # type: ignore[method-assign]

    return change


@pytest.mark.parametrize(
    ("name", "value", "consumer"),
    [
        ("unet_same", "encoder_block_0_relu_1", 3),
        ("unet_same", "encoder_block_0_relu_1", 1),
        ("unet", "central_crop", 3),
        ("resnet18", "conv3_block1_out", 3),
    ],
)
def test_a_skip_whose_gradient_is_lost_is_noticed(name: str, value: str, consumer: int) -> None:
    plan = _plan_of(name, torch.float64, FOUR)
    subject = subject_of(name, torch.float64)
    assert not _is_right(name, torch.float64, subject.staged(plan, change=_without_gradient(value, consumer)))
    assert _is_right(name, torch.float64, subject.staged(plan, change=_without_gradient(value, 9)))


@contextmanager
def _no_switch(_key: Any = None) -> Iterator[None]:
    yield


def test_statistics_that_are_reported_twice_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = _plan_of("unet_same", torch.float64, FOUR, recomputes=(True, False, False, False))
    subject = subject_of("unet_same", torch.float64)
    assert _is_right("unet_same", torch.float64, subject.staged(plan))
    monkeypatch.setattr(subject.batch_norms, "recomputing", _no_switch)
    found = subject.staged(plan)
    assert not _is_right("unet_same", torch.float64, found)
    assert set(found.reports) == {MICRO_BATCHES, 2 * MICRO_BATCHES}
