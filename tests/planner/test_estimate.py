"""The time of an update on a described device follows from its numbers; memory is counted for any recipe."""

from dataclasses import replace
from math import ceil
from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.planner import estimate
from drivetrain.planner.devices.described_device import DescribedDevice
from drivetrain.planner.estimate import UpdateEstimate, estimate_recipe
from tests.planner.plans import ROUND, planned, resolved


def _estimate(device: DescribedDevice = ROUND, **options: Any) -> UpdateEstimate:
    return estimate_recipe(resolved(**options), device=device)


def _compute_s(**options: Any) -> float:
    """Forward and backward of an update at one FLOP per nanosecond; the backward pass is twice as long."""
    run = planned(**options)
    return 3 * run.totals.flops * run.training.batch.micro * run.training.batch.accumulation * 1e-9


def test_one_process_takes_the_time_of_its_flops() -> None:
    found = _estimate(precision="32.32")
    assert found.source == "described"
    assert found.seconds_per_update == pytest.approx(_compute_s(), rel=1e-9)
    assert found.images_per_second == pytest.approx(8 / _compute_s(), rel=1e-9)
    assert found.training_s == pytest.approx(_compute_s() * found.total_updates, rel=1e-9)


def test_sixteen_bits_and_efficiency_count() -> None:
    assert _estimate(precision="16.32").seconds_per_update == pytest.approx(_compute_s() / 2, rel=1e-9)
    half = replace(ROUND, efficiency=0.5)
    assert _estimate(half, precision="32.32").seconds_per_update == pytest.approx(2 * _compute_s(), rel=1e-9)


def test_memory_bounds_a_layer_on_a_device_with_slow_memory() -> None:
    slow = _estimate(replace(ROUND, flops={"float32": 1e30}, bytes_per_s=1e6), precision="32.32")
    fast = _estimate(replace(ROUND, flops={"float32": 1e30}, bytes_per_s=2e6), precision="32.32")
    assert slow.seconds_per_update is not None
    assert fast.seconds_per_update == pytest.approx(slow.seconds_per_update / 2, rel=1e-9)


def test_recomputation_repeats_the_forward_pass() -> None:
    found = _estimate(precision="32.32", recomputation=True)
    assert found.seconds_per_update == pytest.approx(_compute_s() * 4 / 3, rel=1e-9)


def test_replicas_on_two_hosts_wait_for_the_slow_link() -> None:
    near = _estimate(precision="32.32", replicas=2)
    far = _estimate(precision="32.32", replicas=4)
    assert near.all_reduce is not None
    assert far.all_reduce is not None
    assert near.all_reduce.seconds == pytest.approx(0.0, abs=1e-12)
    size = planned().totals.trainable * 4
    assert far.all_reduce.bytes == pytest.approx(size, rel=0.01)
    assert far.all_reduce.seconds == pytest.approx(6 / 4 * far.all_reduce.bytes / 1e6 + 6e-3)
    assert far.all_reduce.overlaps
    assert far.seconds_per_update == pytest.approx(_compute_s() + far.all_reduce.exposed_s)
    assert _estimate(precision="32.32").all_reduce is None


def test_stages_have_a_bubble_and_a_bottleneck() -> None:
    found = _estimate(precision="32.32", stages=2, gradient_accumulation_count=4)
    assert found.stages is not None
    stages = found.stages
    per_stage = [ahead + back for ahead, back in zip(stages.forward_s, stages.backward_s, strict=True)]
    assert sum(per_stage) * 4 == pytest.approx(_compute_s(gradient_accumulation_count=4), rel=1e-9)
    assert stages.bottleneck == per_stage.index(max(per_stage))
    assert stages.passes_s >= 4 * max(per_stage)
    assert 0 < stages.bubble < 1
    assert found.seconds_per_update == pytest.approx(stages.passes_s, rel=1e-9)


def test_the_parts_of_a_device_add_up_to_its_peak() -> None:
    for options in ({}, {"stages": 2}, {"ema": 0.9}, {"optimizer": "adam"}):
        for device in _estimate(**options).devices:
            assert device.peak_bytes == sum(device.parts.values())
            assert device.available_bytes == ROUND.memory_bytes
            assert device.fits


def test_a_limit_decides_whether_a_run_fits() -> None:
    peak = _estimate().peak_bytes
    assert peak is not None
    # Tensors can use 94 % of an accelerator.
    limit = ceil(peak / 0.94)
    assert estimate_recipe(resolved(), device=ROUND, memory_limit_bytes=limit).fits is True
    assert estimate_recipe(resolved(), device=ROUND, memory_limit_bytes=limit - 2).fits is False
    on_cpu = replace(ROUND, kind="cpu")
    peak = _estimate(on_cpu).peak_bytes
    assert peak is not None
    assert estimate_recipe(resolved(), device=on_cpu, memory_limit_bytes=peak).fits is True
    assert estimate_recipe(resolved(), device=on_cpu, memory_limit_bytes=peak - 1).fits is False


def test_without_a_measurement_there_are_no_seconds() -> None:
    found = estimate_recipe(resolved(), measure="off")
    assert (found.seconds_per_update, found.images_per_second, found.training_s) == (None, None, None)
    assert found.notes == ("--measure off: the time of an update is not known.",)
    assert found.fits is True


def test_a_device_that_is_elsewhere_has_unknown_memory() -> None:
    found = estimate_recipe(resolved(device="xpu:0"))
    assert found.fits is None
    assert found.devices[0].available_bytes is None
    assert found.seconds_per_update is None
    assert "--device-file" in found.notes[0]


def test_launches_count_and_those_of_the_host_where_nothing_is_captured() -> None:
    layers = _layers()
    launching = replace(ROUND, launch_s=1.0)
    assert _estimate(launching, precision="32.32").seconds_per_update == pytest.approx(
        3 * layers + _compute_s(), rel=1e-6
    )
    by_host = replace(ROUND, host_launch_s=10.0)
    assert _estimate(by_host, precision="32.32").seconds_per_update == pytest.approx(_compute_s(), rel=1e-9)
    uncaptured = _estimate(by_host, precision="32.32", capture="off")
    assert uncaptured.seconds_per_update == pytest.approx(30 * layers, rel=1e-6)


def test_more_ranks_than_described_devices_are_refused() -> None:
    two_hosts = replace(ROUND, hosts=2)
    assert _estimate(two_hosts, replicas=4).fits
    with pytest.raises(BadInputError, match=r"needs 6 devices, .* 4 \(2 hosts .*; --replicas 2 fits"):
        _estimate(two_hosts, replicas=3, stages=2)


def test_a_failed_measurement_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> None:
        raise ValueError("no kernel")

    monkeypatch.setattr(estimate, "measured_times", failing)
    found = estimate_recipe(resolved(), measure="on")
    assert found.seconds_per_update is None
    assert "could not be measured" in found.notes[0]
    assert "no kernel" in found.notes[0]


def _layers() -> int:
    plan = planned(stages=2).outline.plan
    assert plan is not None
    return len(plan.traced.layers)
