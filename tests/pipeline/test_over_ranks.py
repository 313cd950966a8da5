"""Stages on ranks of their own compute what one process computes, replicas and all."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file

from drivetrain.plan.stage_report import report_run
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE
from tests.pipeline.rank_programs import (
    GLOBAL_BATCH,
    Job,
    Measured,
    build,
    carry_on,
    cut_options,
    measure,
    measure_alone,
    measure_both,
    poison,
    validate,
)
from tests.program.harness import worst_error

TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-10}
LOSS_TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-8}
FOUR = (0, 1, 2, 3)

CELLS: list[tuple[str, int, tuple[int, ...], str, bool, torch.dtype]] = [
    ("cifar_resnet8", 1, (0, 1), "1f1b", False, torch.float32),
    ("cifar_resnet8", 2, (0, 1), "zero-bubble", True, torch.float64),
    ("cifar_resnet8", 1, FOUR, "grouped", False, torch.float64),
    ("cifar_resnet8", 1, (0, 1, 0, 1), "grouped", True, torch.float64),
    ("resnet18", 1, FOUR, "1f1b", True, torch.float32),
    ("resnet18", 2, (0, 1, 1, 0), "gpipe", False, torch.float64),
    ("resnet18", 1, (0, 1), "sequential", False, torch.float64),
    ("unet", 1, (0, 1), "zero-bubble", False, torch.float32),
    ("unet", 1, FOUR, "1f1b", False, torch.float64),
    ("unet", 2, (0, 1), "grouped", True, torch.float64),
    ("unet_same", 1, FOUR, "zero-bubble", False, torch.float64),
    ("unet_same", 2, (0, 1, 0, 1), "1f1b", True, torch.float32),
    ("unet_same", 1, (0, 1, 1, 0), "zero-bubble", False, torch.float64),
    ("unet_same", 2, (0, 1), "gpipe", False, torch.float64),
]


def _check(expected: Measured, found: Measured, *, dtype: torch.dtype = torch.float64) -> None:
    assert worst_error(expected.gradients, found.gradients) <= TOLERANCE[dtype]
    assert worst_error(expected.last_gradients, found.last_gradients) <= TOLERANCE[dtype]
    assert np.abs(expected.losses - found.losses).max() <= LOSS_TOLERANCE[dtype]
    assert expected.state.keys() == found.state.keys()
    assert worst_error(expected.state, found.state) <= TOLERANCE[dtype]
    assert expected.optimiser.keys() == found.optimiser.keys()
    if expected.optimiser:
        assert worst_error(expected.optimiser, found.optimiser) <= TOLERANCE[dtype]


@pytest.mark.parametrize(("kind", "replicas", "device_of", "schedule", "recomputes", "dtype"), CELLS)
def test_ranks_compute_what_one_process_does(
    rank_pool: RankPool,
    kind: str,
    replicas: int,
    device_of: tuple[int, ...],
    schedule: str,
    recomputes: bool,
    dtype: torch.dtype,
) -> None:
    updates = 2 if kind == "unet" else 4
    options = cut_options(
        kind, device_of=device_of, schedule=schedule, replicas=replicas, recomputation=recomputes
    )
    alone = Job(kind=kind, options={}, dtype=dtype, updates=updates)
    expected, found = measure_both(rank_pool, alone=alone, cut=replace(alone, options=options))
    _check(expected, found, dtype=dtype)
    spoilt = {name: value * 1.001 for name, value in found.gradients.items()}
    assert worst_error(expected.gradients, spoilt) > TOLERANCE[dtype]


@pytest.mark.parametrize(("kind", "replicas", "device_of"), [("unet_same", 1, FOUR), ("unet", 2, (0, 1))])
def test_every_rank_sends_as_many_bytes_as_the_plan_says(
    rank_pool: RankPool, kind: str, replicas: int, device_of: tuple[int, ...]
) -> None:
    options = cut_options(kind, device_of=device_of, replicas=replicas)
    job = Job(kind=kind, options=options, dtype=torch.float32, updates=1)
    outline = build(ALONE, job).outline
    assert outline is not None
    stages = report_run(outline)["stages"]
    sent: list[Measured] = rank_pool.run(measure, job, ranks=replicas * len(device_of))
    assert [part.bytes_sent for part in sent] == [stage["sent_bytes"] for stage in stages] * replicas
    assert all(part.bytes_sent > 0 for part in sent)


@pytest.mark.parametrize(("schedule", "recomputes"), [("1f1b", False), ("zero-bubble", True)])
def test_a_group_of_replicas_normalises_together_inside_of_a_pipeline(
    rank_pool: RankPool, schedule: str, recomputes: bool
) -> None:
    options = cut_options("unet_same", device_of=(0, 1), schedule=schedule, recomputation=recomputes)
    job = Job(kind="unet_same", options={**options, "replicas": 2, "dbn_replica_group_size": 2})
    _check(*measure_both(rank_pool, alone=Job(kind="unet_same", options={}, micro=4), cut=job))


LARS = {
    "optimizer": "lars",
    "optimizer_params": {"momentum": 0.9, "weight_decay": 0.001, "eeta": 0.1, "epsilon": 0.0},
}
RULES: dict[str, dict[str, Any]] = {
    "clipping": {"clip_norm": 0.05, "l2_regularization": 0.01},
    "loss scaling": {"loss_scaling": 64.0, "clip_norm": 0.05},
    "average": {"ema": 0.5},
    "lars": LARS,
    "adam, offloaded": {"optimizer": "adam", "optimizer_state_offloading": True},
}


@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_what_is_done_to_gradients_and_weights_is_done_over_all_stages(
    rank_pool: RankPool, rules: dict[str, Any]
) -> None:
    options = cut_options("cifar_resnet8", device_of=(0, 1), replicas=2)
    alone = Job(kind="cifar_resnet8", options=rules, updates=3)
    expected, found = measure_both(rank_pool, alone=alone, cut=replace(alone, options={**options, **rules}))
    _check(expected, found)
    assert expected.averaged.keys() == found.averaged.keys()
    assert bool(found.averaged) == ("ema" in rules)
    if found.averaged:
        assert worst_error(expected.averaged, found.averaged) <= 1e-10
    plain = measure_alone(replace(alone, options={}))
    weights = found.averaged or found.state
    assert worst_error(plain.state, weights) > 1e-6


@pytest.mark.parametrize("parameter", ["conv1_conv.weight", "predictions.bias"])
def test_one_gradient_that_is_not_finite_stops_all_ranks_before_any_weight_moves(
    rank_pool: RankPool, parameter: str
) -> None:
    job = Job(kind="resnet18", options=cut_options("resnet18", device_of=(0, 1), replicas=2))
    for error, stayed in rank_pool.run(poison, job, parameter):
        assert (
            "the gradient is not finite at update 1, on 2 of 4 ranks; the weights were not changed" in error
        )
        assert stayed


@pytest.mark.parametrize(("kind", "replicas", "device_of"), [("unet_same", 2, (0, 1)), ("resnet18", 1, FOUR)])
def test_validation_goes_through_the_stages(
    rank_pool: RankPool, kind: str, replicas: int, device_of: tuple[int, ...]
) -> None:
    # Eleven samples in batches of four: batches of two sizes, and replicas with different shares.
    common = {"validation": True, "validation_micro_batch_size": 4, "ema": 0.5}
    options = {**cut_options(kind, device_of=device_of, replicas=replicas), **common}
    expected = validate(ALONE, Job(kind=kind, options=common))
    for found in rank_pool.run(validate, Job(kind=kind, options=options), ranks=replicas * len(device_of)):
        for one, other in zip(expected, found, strict=True):
            assert other == pytest.approx(one, rel=1e-10)
    assert expected[0] != expected[1]


def _files(folder: Path) -> dict[str, dict[str, Any]]:
    newest = next(folder.glob("[0-9]*"))
    return {path.name: load_file(path) for path in newest.glob("*.safetensors")}


def test_a_checkpoint_of_any_layout_loads_under_any_other(rank_pool: RankPool, tmp_path: Path) -> None:
    rules = {"optimizer": "adam", "ema": 0.5}
    layouts = {
        "one": {},
        "two by two": cut_options("unet_same", device_of=(0, 1), replicas=2),
        "four": cut_options("unet_same", device_of=FOUR, schedule="gpipe"),
        "in process": cut_options("unet_same", device_of=(0, 1, 1, 0)),
        "one again": {},
    }
    source: str | None = None
    for name, options in layouts.items():
        job = Job(kind="unet_same", options={**options, **rules}, updates=2)
        target = str(tmp_path / name)
        if name in ("two by two", "four"):
            rank_pool.run(carry_on, job, source, target)
        else:
            carry_on(ALONE, job, source, target)
        source = target
    first = _files(tmp_path / "one")
    assert first.keys() == {"model.safetensors", "optimizer.safetensors", "averaged.safetensors"}
    assert any(np.abs(value).max() > 0 for value in first["optimizer.safetensors"].values())
    for name in layouts:
        found = _files(tmp_path / name)
        for file, tensors in first.items():
            assert found[file].keys() == tensors.keys()
            assert all(found[file][key].tobytes() == tensors[key].tobytes() for key in tensors)


@pytest.mark.parametrize("samples", [GLOBAL_BATCH + 5, GLOBAL_BATCH + 2], ids=["five left", "two left"])
@pytest.mark.parametrize("schedule", ["grouped", "1f1b", "zero-bubble"])
def test_the_last_update_of_a_padded_epoch_has_fewer_micro_batches(
    rank_pool: RankPool, schedule: str, samples: int
) -> None:
    common = {"remainder": "pad"}
    options = cut_options("cifar_resnet8", device_of=(0, 1), schedule=schedule, replicas=2)
    alone = Job(kind="cifar_resnet8", options=common, samples=samples, updates=4)
    _check(*measure_both(rank_pool, alone=alone, cut=replace(alone, options={**options, **common})))


def test_a_stage_without_weights_and_a_frozen_one(rank_pool: RankPool) -> None:
    frozen = {"freeze": ["conv1_*"]}
    splits = {"pipeline_splits": ["pool1_pool", "conv2_block1_1_conv", "avg_pool"]}
    for schedule in ("1f1b", "zero-bubble"):
        options = {**frozen, **splits, **LARS, "pipeline_schedule": schedule}
        alone = Job(kind="resnet18", options={**frozen, **LARS})
        expected, found = measure_both(rank_pool, alone=alone, cut=replace(alone, options=options))
        _check(expected, found)
        assert "conv1_conv.weight" not in found.gradients
