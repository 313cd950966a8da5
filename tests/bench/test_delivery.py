"""How fast a feed delivers, with augmentation and without, and whether that is enough."""

from typing import Any

import pytest

from drivetrain.bench.delivery import DeliveryMeasurement, delivery_result, keeps_up, measure_delivery
from drivetrain.bench.repetition import Repetition
from drivetrain.bench.result import BenchResult, Entry
from drivetrain.console.reporter import Reporter
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.load import ResolvedRecipe, resolve_recipe

REPETITION = Repetition(warmup_steps=1, steps=2, repeats=2)
SMALL = {"dataset": "digits", "model": "cifar_resnet8", "micro_batch_size": "8", "device": "cpu"}


def _measure(**overrides: Any) -> BenchResult:
    resolved = _resolved(**overrides)
    measured = measure_delivery(resolved, REPETITION, reporter=Reporter(quiet=True))
    return delivery_result(resolved, measured, REPETITION, command="x")


def _resolved(**overrides: Any) -> ResolvedRecipe:
    return resolve_recipe(overrides={**SMALL, "num_threads": "1", **overrides})


@pytest.mark.parametrize("placement", ["resident", "stream"])
def test_with_and_without_augmentation(placement: str) -> None:
    workers = {"num_workers": "0"} if placement == "stream" else {}
    found = _measure(augment="True", mixup="0.2", data_placement=placement, **workers)
    assert [entry.name for entry in found.entries] == ["data with augmentation", "data without augmentation"]
    assert found.settings["placement"] == placement
    for entry in found.entries:
        assert set(entry.figures) == {"images_per_second", "read_per_second", "preprocess_per_second"}
        assert min(entry.figures.values()) > 0


def test_without_augmentation_there_is_one_entry() -> None:
    (entry,) = _measure().entries
    assert entry.name == "data without augmentation"


def test_images_with_masks() -> None:
    dense = {"dataset": "synthetic-em", "model": "unet_same", "image_size": "16", "dataset_size": "8"}
    found = _measure(**dense)
    assert len(found.entries) == 2


def _measure_rank(group: ReplicaGroup, resolved: ResolvedRecipe) -> DeliveryMeasurement:
    return measure_delivery(resolved, REPETITION, reporter=Reporter(quiet=True), group=group)


@pytest.mark.parametrize("placement", ["resident", "stream"])
def test_replicas_share_the_delivery(rank_pool: RankPool, placement: str) -> None:
    workers = {"num_workers": "0"} if placement == "stream" else {}
    resolved = _resolved(replicas="2", data_placement=placement, **workers)
    first, second = rank_pool.run(_measure_rank, resolved, ranks=2)
    assert first.entries == second.entries
    assert first.global_batch == 16
    found = delivery_result(resolved, first, REPETITION, command="x")
    assert (found.settings["replicas"], found.settings["placement"]) == (2, placement)


def test_whether_it_keeps_up() -> None:
    found = _measure()
    assert keeps_up(found, needed=1e-3).startswith("the feed keeps up")
    said = keeps_up(found, needed=1e12)
    assert said.startswith("the feed does not keep up")
    assert " 1000000000000 are needed" in said
    assert "the data are resident" in said
    assert "--num-workers" not in said


def _result(placement: str, **figures: float) -> BenchResult:
    return BenchResult(
        benchmark="data",
        command="x",
        machine={},
        workload={},
        settings={"placement": placement},
        recipe={},
        entries=[Entry(name="data without augmentation", figures=figures)],
    )


def test_numbers_and_advice_are_plain() -> None:
    figures = {"images_per_second": 1301030.4, "read_per_second": 90.0, "preprocess_per_second": 5e6}
    said = "it delivers 1301030 images/s, 2000000 are needed"
    assert keeps_up(_result("stream", **figures), needed=2e6) == (
        f"the feed does not keep up: {said}; reading is the slowest stage: 90 images/s without loader "
        "workers; more workers may help (--num-workers)."
    )
    assert keeps_up(_result("resident", **figures), needed=2e6) == (
        f"the feed does not keep up: {said}; the data are resident in memory, and preprocessing alone "
        "reaches 5000000 images/s."
    )
    assert keeps_up(_result("resident", **figures), needed=440.5).endswith(" 440.5 are needed.")


@pytest.mark.parametrize(("is_resident", "workers"), [(True, None), (False, 1)])
def test_settings_hold_what_was_used(is_resident: bool, workers: int | None) -> None:
    measured = DeliveryMeasurement(
        entries=[], workload={}, global_batch=8, is_resident=is_resident, num_workers=1, threads=1, machine={}
    )
    found = delivery_result(_resolved(), measured, REPETITION, command="x", needed=1e6)
    assert found.settings.get("num_workers") == workers
    assert repr(found.settings["needed_images_per_second"]) == "1000000"
