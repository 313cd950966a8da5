"""Training measured by its own path: real data, noise of the host, noise on the device, replicas."""

from pathlib import Path
from typing import Any

import pytest

from drivetrain.bench.repetition import Repetition
from drivetrain.bench.subject import Subject, WantedData, prepare_subject
from drivetrain.bench.train import TrainMeasurement, measure_training, training_result
from drivetrain.cluster.pool import RankPool
from drivetrain.cluster.replica_group import ReplicaGroup
from drivetrain.data.source import DataSplits
from drivetrain.errors import BadInputError
from drivetrain.recipe.load import resolve_recipe
from drivetrain.run.reporter import Reporter

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "model": "cifar_resnet8",
    "micro_batch_size": "4",
    "gradient_accumulation_count": "2",
    "device": "cpu",
    "num_threads": "1",
    "num_workers": "0",
}
REPETITION = Repetition(warmup_steps=1, steps=2, repeats=3)


def _prepare(data: WantedData, **overrides: Any) -> tuple[Subject, DataSplits]:
    return prepare_subject(resolve_recipe(overrides={**SMALL, **overrides}), data=data, repetition=REPETITION)


@pytest.mark.usefixtures("small_peak")
@pytest.mark.parametrize("data", ["real", "host", "device"])
def test_every_kind_of_data(data: WantedData) -> None:
    subject, splits = _prepare(data)
    measured = measure_training(subject, reporter=Reporter(quiet=True), data=splits)
    assert [len(repeat["step_seconds"]) for repeat in measured.repeats] == [2, 2, 2]
    found = training_result(subject, measured, command="drivetrain bench train")
    (entry,) = found.entries
    figures = entry.figures
    speeds = sorted(repeat["images_per_second"] for repeat in measured.repeats)
    assert figures["images_per_second"] == speeds[1]
    assert figures["tflops"] == pytest.approx(3 * measured.forward_flops * speeds[1] / 1e12)
    assert figures["fraction_of_peak"] == pytest.approx(figures["tflops"] / measured.peaks[0].tflops)
    assert figures["p50_seconds"] <= figures["p99_seconds"]
    assert found.settings["data"] == data
    assert found.settings["global_batch_size"] == 8
    assert found.recipe["micro_batch_size"] == 4
    assert found.workload["image"] == "1x8x8"


@pytest.mark.usefixtures("small_peak")
def test_a_segmentation_without_its_files() -> None:
    overrides = {"dataset": "isbi2012", "model": "unet_same", "image_size": "16", "model_width": "2"}
    subject, splits = _prepare("auto", **overrides, model_params="{depth: 1}", border_weight="10")
    assert subject.data_kind == "device"
    assert "noise on the device" in subject.warnings[0]
    measured = measure_training(subject, reporter=Reporter(quiet=True), data=splits)
    assert measured.image_shape == (1, 16, 16)


def test_real_data_that_are_not_there_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInputError):
        _prepare("real", dataset="mnist", model="mnist_cnn")
    with pytest.raises(BadInputError):
        _prepare("auto", dataset="mnist", model="mnist_cnn", data_dir=str(tmp_path))


def test_options_of_a_run_are_said_to_have_no_effect() -> None:
    subject, _ = _prepare("device", output_dir="runs/x", num_epochs="3")
    assert "--num-epochs 3 has no effect on bench train." in subject.warnings
    assert "--output-dir runs/x has no effect on bench train." in subject.warnings
    assert len(subject.warnings) == 2


def _measure(group: ReplicaGroup, subject: Subject) -> TrainMeasurement:
    return measure_training(subject, reporter=Reporter(quiet=True), group=group)


def test_replicas_are_measured_together(rank_pool: RankPool) -> None:
    subject, _ = _prepare("device", replicas="2")
    first, second = rank_pool.run(_measure, subject, ranks=2)
    assert first.global_batch == second.global_batch == 16
    assert len(first.peaks) == len(first.peak_memory_bytes) == 2
    found = training_result(subject, first, command="")
    assert found.peak["tflops"] == pytest.approx(sum(peak.tflops for peak in first.peaks))
    assert found.settings["replicas"] == 2
