"""What recomputation, dropout without masks and offloading save: planned, and counted tensor by tensor."""

import gc
import warnings
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

from drivetrain.layers.draws import install
from drivetrain.optim.offloading import OffloadedOptimiser
from drivetrain.pipeline.memory.weight_memory import LiveBytes
from drivetrain.program.training_program import TrainingProgram
from tests.plan.staged_runs import assembled, planned

ONE_DEVICE: dict[str, Any] = {
    "stages": 4,
    "device_mapping": (0, 0, 0, 0),
    "pipeline_schedule": "gpipe",
    "gradient_accumulation_count": 4,
}
ONE_PIECE: dict[str, Any] = {"gradient_accumulation_count": 4}


def _counted_peak(name: str, **options: Any) -> int:
    """The most that a second update holds, beside what was there before it."""
    return _counted_update(assembled(name, **options))


def _counted_update(program: TrainingProgram) -> int:
    program.run_update(0)
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = [thing for thing in gc.get_objects() if isinstance(thing, Tensor)]
    with LiveBytes(before=before) as live:
        program.run_update(1)
    peak_bytes: int = live.peak_bytes
    return peak_bytes


def _planned_saving(name: str, saver: str, **options: Any) -> int:
    device = planned(name, **options)["memory"]["devices"][0]
    saved: int = device["savings"][saver]
    return saved


@pytest.mark.parametrize(
    ("name", "layout", "tolerance"),
    [
        ("cifar_resnet8", ONE_PIECE, 0.03),
        ("cifar_resnet8", ONE_DEVICE, 0.03),
        ("cifar_resnet8", {**ONE_DEVICE, "pipeline_schedule": "zero-bubble"}, 0.05),
        ("unet_same", ONE_DEVICE, 0.05),
    ],
)
def test_recomputation_saves_what_the_plan_says(name: str, layout: dict[str, Any], tolerance: float) -> None:
    saving = _planned_saving(name, "recomputation", **layout, recomputation=True)
    plain, recomputed = (_counted_peak(name, **layout, recomputation=again) for again in (False, True))
    assert saving == pytest.approx(plain - recomputed, rel=tolerance)


def test_dropout_without_masks_saves_what_the_plan_says() -> None:
    saving = _planned_saving("unet_same", "mask_free_dropout", **ONE_DEVICE)
    without_masks = _counted_peak("unet_same", **ONE_DEVICE)
    with mock.patch.object(install, "install_counter_dropout"):
        with_masks = _counted_peak("unet_same", **ONE_DEVICE)
    assert saving > 0
    assert saving == pytest.approx(with_masks - without_masks, rel=0.15)


def test_offloading_saves_what_the_plan_says() -> None:
    options = {"model": "cifar_resnet20", "optimizer": "adam", "optimizer_params": {}, "micro_batch_size": 1}
    saving = _planned_saving("cifar_resnet8", "optimizer_state_offloading", optimise_for="speed", **options)
    peaks = []
    for offloads in (False, True):
        program = assembled("cifar_resnet8", **options, optimizer_state_offloading=offloads)
        optimiser = program.mover.optimiser
        on_device = list(optimiser.states.values())
        if isinstance(optimiser, OffloadedOptimiser):
            on_device = optimiser.buffers
        peaks.append(_counted_update(program) + sum(state.nbytes for state in on_device))
    assert saving > 10**6
    assert saving == pytest.approx(peaks[0] - peaks[1], rel=0.15)


def test_the_planned_peak_of_a_device_is_that_of_its_passes() -> None:
    device = planned("cifar_resnet8", **ONE_DEVICE)["memory"]["devices"][0]
    held = device["activations"] + device["working"]
    assert held == pytest.approx(_counted_peak("cifar_resnet8", **ONE_DEVICE), rel=0.02)
    lasting = device["parameters"] + device["gradients"] + device["optimiser_states"]
    assert device["peak"] == lasting + held + device.get("checkpoint", 0)
    assert torch.float32.itemsize * 75290 <= device["gradients"] < device["parameters"]


def test_the_first_cpu_rank_has_the_copy_for_checkpoints() -> None:
    cut: dict[str, Any] = {"stages": 2, "optimizer": "adam", "optimizer_params": {}, "device": "cpu"}
    first, second = planned("cifar_resnet8", **cut)["memory"]["devices"]
    state = sum(device["parameters"] + device["optimiser_states"] for device in (first, second))
    assert first["checkpoint"] == state
    assert "checkpoint" not in second
    averaged = planned("cifar_resnet8", **cut, ema=0.9)["memory"]["devices"][0]
    assert averaged["checkpoint"] == state + first["parameters"] + second["parameters"]
    for other in ({"checkpoints": False}, {"device": "cuda", "precision": "32.32"}):
        device = planned("cifar_resnet8", **{**cut, **other})["memory"]["devices"][0]
        assert "checkpoint" not in device
        assert device["peak"] == first["peak"] - state


def test_a_plan_says_what_it_does_not_count_on_a_cpu() -> None:
    wishes: tuple[dict[str, Any], ...] = ({}, {"optimise_for": "memory"})
    plain, tight = (planned("cifar_resnet8", stages=2, device="cpu", **wish) for wish in wishes)
    assert plain["memory"]["libraries_bytes"] == tight["memory"]["libraries_bytes"] > 0
    assert (plain["memory"]["has_gaps"], tight["memory"]["has_gaps"]) == (True, False)
    assert "has_gaps" not in planned("cifar_resnet8", stages=2, device="cuda")["memory"]
