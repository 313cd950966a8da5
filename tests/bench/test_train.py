"""Training measured by its own path: real data, noise of the host, noise on the device, replicas."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from drivetrain.assembly.training_parts import Assembly, assemble
from drivetrain.bench import train
from drivetrain.bench.machine import DevicePeak
from drivetrain.bench.repetition import Repetition
from drivetrain.bench.subject import Subject, WantedData, prepare_subject
from drivetrain.bench.train import measure_training
from drivetrain.bench.train_result import LongTraining, TrainMeasurement, training_result
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSplits
from drivetrain.devices.device import choose_device
from drivetrain.plan.training_plan import plan_training
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.recipe.load import resolve_recipe
from tests.run.shown_work import ShownWork

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
    subject, splits = _prepare(data, compile="off")  # A busy machine could find that compiling pays.
    shown = ShownWork()
    measured = measure_training(subject, reporter=shown, data=splits)
    assert shown.names == shown.ended == ["building the model", "bench train", "measuring the device's peak"]
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
    assert entry.states == {"compiled": "no", "captured": "no"}
    assert "updates not captured: CUDA graphs need a CUDA device, this is a CPU" in found.notes
    assert subject.whole_updates == 15 * (1438 // 8)


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
    subject, _ = _prepare("real", output_dir="runs/x", num_epochs="3", init_from="runs/y")
    assert subject.warnings == (
        "--init-from runs/y has no effect on bench train.",
        "--num-epochs 3 has no effect on bench train.",
        "--output-dir runs/x has no effect on bench train.",
    )


def test_what_noise_leaves_out_is_said() -> None:
    options = {"folds": "5", "fold": "0", "mixup": "0.2", "shuffle": "False"}
    of_noise = ("--folds 5", "--fold 0")
    of_device = ("--shuffle False", "--num-workers 0", "--mixup 0.2")
    for data, said in (("host", of_noise), ("device", (*of_noise, *of_device)), ("real", ())):
        warnings = _prepare(data, **options)[0].warnings  # type: ignore[arg-type]
        ending = f" has no effect on bench train --data {data}."
        assert sorted(warnings) == sorted(f"{option}{ending}" for option in said)


@pytest.mark.usefixtures("small_peak")
@pytest.mark.parametrize("data", ["host", "device"])
@pytest.mark.parametrize("weights", ["balanced", "1 2"])
def test_noise_has_class_weights(data: WantedData, weights: str) -> None:
    dense = {"dataset": "isbi2012", "model": "unet_same", "image_size": "16", "model_width": "2"}
    subject, splits = _prepare(data, **dense, model_params="{depth: 1}", class_weights=weights)
    assembly = _assembled(subject, splits)
    found = assembly.program.task.class_weights  # type: ignore[attr-defined]
    assert found is not None
    ratio = float(found[1] / found[0])
    assert ratio == pytest.approx(2.0 if weights == "1 2" else 1.0, rel=0.2)


@pytest.mark.parametrize("share", [None, "0.3"])
def test_noise_of_the_host_is_cropped(share: str | None) -> None:
    subject, splits = _prepare("host", **({} if share is None else {"random_resized_crop": share}))
    first = [_images(subject, splits, update) for update in (0, 1)]
    assert torch.equal(first[0].sort(0).values, first[1].sort(0).values) == (share is None)


def _assembled(subject: Subject, splits: DataSplits) -> Assembly:
    plan = plan_training(subject.recipe, samples=len(splits.train))
    return assemble(subject.recipe, data=splits, model=None, plan=plan, device=choose_device("cpu"))


def _images(subject: Subject, splits: DataSplits, update: int) -> torch.Tensor:
    """All pixels of an update, whatever the order of its samples."""
    feed = _assembled(subject, splits).program.feed
    return torch.cat([batch.images.flatten() for batch in feed.micro_batches(update)])


def _measure(group: ReplicaGroup, subject: Subject) -> TrainMeasurement:
    return measure_training(subject, reporter=Reporter(quiet=True), group=group)


def _found(**changes: Any) -> TrainMeasurement:
    repeats = [
        {"images_per_second": 8 / seconds, "seconds_per_update": seconds, "step_seconds": [seconds]}
        for seconds in (1.0, 2.0)
    ]
    measured = TrainMeasurement(
        global_batch=8,
        image_shape=(1, 8, 8),
        num_classes=10,
        forward_flops=100,
        precision="float32",
        is_compiled=False,
        compiling="compile off: asked for",
        compile_s=None,
        capturing="not captured",
        repeats=repeats,
        peak_memory_bytes=[1],
        peaks=[DevicePeak(dtype="float32", tflops=1.0, copy_gb_per_second=1.0)],
        threads=1,
        machine={},
        warnings=[],
    )
    return replace(measured, **changes)


def test_a_row_agrees_with_itself_and_tells_of_repeats_that_do_not() -> None:
    found = training_result(_prepare("device")[0], _found(), command="")
    figures = found.entries[0].figures
    assert (figures["seconds_per_update"], figures["images_per_second"]) == (1.5, 8 / 1.5)
    assert "the repeats of train differ by a factor of 2.0" in found.notes[0]
    assert "compile_seconds" not in figures


def test_the_time_of_compiling_is_noted_and_kept() -> None:
    found = training_result(_prepare("device")[0], _found(compile_s=12.34, is_compiled=True), command="")
    assert "compiling took 12.3 s" in found.notes
    assert found.to_json()["entries"][0]["compile_seconds"] == 12.34


def test_a_training_that_is_too_short_to_compile_is_told_with_a_longer_one() -> None:
    subject, _ = _prepare("device")
    notes = training_result(subject, _found(is_short=True), command="").notes
    assert any("which --compile on measures" in note for note in notes)
    assert not any("longer training" in note for note in training_result(subject, _found(), command="").notes)
    repeats = [{"images_per_second": 16.0, "seconds_per_update": 0.5, "step_seconds": [0.5]}]
    long = LongTraining(repeats=repeats, compile_s=20.0, peak_memory_bytes=5, capturing="captured")
    first, second = training_result(subject, _found(is_short=True, long=long), command="").entries
    assert (first.name, second.name) == ("train", "train, long enough to compile")
    assert first.figures["images_per_second"] == 8 / 1.5
    assert second.figures["images_per_second"] == 16.0
    assert second.figures["compile_seconds"] == 20.0
    assert second.states == {"compiled": "yes", "captured": "yes"}


@pytest.mark.usefixtures("small_peak")
@pytest.mark.parametrize("compile_mode", ["auto", "off"])
def test_where_compiling_is_quick_both_lengths_are_measured(
    monkeypatch: pytest.MonkeyPatch, compile_mode: str
) -> None:
    monkeypatch.setattr(train, "_compiles_quickly", lambda choice, _: choice.is_short)
    monkeypatch.setattr(torch, "compile", lambda function, **_: function)
    subject, splits = _prepare("device", compile=compile_mode, num_epochs="1")
    measured = measure_training(subject, reporter=Reporter(quiet=True), data=splits)
    assert not measured.is_compiled
    assert (measured.long is not None) == measured.is_short == (compile_mode == "auto")
    if measured.long is not None:
        assert [len(repeat["step_seconds"]) for repeat in measured.long.repeats] == [2, 2, 2]


@pytest.mark.usefixtures("small_peak")
def test_a_repeat_ends_after_its_seconds() -> None:
    resolved = resolve_recipe(overrides={**SMALL, "compile": "off"})
    repetition = Repetition(warmup_steps=1, steps=1000, repeats=2, most_s=1e-9)
    subject, splits = prepare_subject(resolved, data="device", repetition=repetition)
    measured = measure_training(subject, reporter=Reporter(quiet=True), data=splits)
    assert [len(repeat["step_seconds"]) for repeat in measured.repeats] == [1, 1]
    found = training_result(subject, measured, command="")
    assert found.settings["seconds"] == 1e-9
    assert found.to_json()["model"]["parameters"] == 75002


@pytest.mark.parametrize("warmup_steps", [0, 2])
@pytest.mark.usefixtures("small_peak")
def test_the_first_update_compiles(monkeypatch: pytest.MonkeyPatch, warmup_steps: int) -> None:
    def slow_at_first(function: Callable[..., Any], **_: object) -> Callable[..., Any]:
        calls = 0

        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal calls
            calls += 1
            time.sleep(0.3 if calls == 1 else 0.0)
            return function(*args, **kwargs)

        return run

    monkeypatch.setattr(torch, "compile", slow_at_first)
    resolved = resolve_recipe(overrides={**SMALL, "compile": "on"})
    repetition = Repetition(warmup_steps=warmup_steps, steps=4, repeats=1)
    subject, splits = prepare_subject(resolved, data="device", repetition=repetition)
    measured = measure_training(subject, reporter=Reporter(quiet=True), data=splits)
    assert measured.is_compiled
    assert measured.compile_s is not None
    assert measured.compile_s > 0.25


def test_replicas_are_measured_together(rank_pool: RankPool) -> None:
    subject, _ = _prepare("device", replicas="2")
    first, second = rank_pool.run(_measure, subject, ranks=2)
    assert first.global_batch == second.global_batch == 16
    assert len(first.peaks) == len(first.peak_memory_bytes) == 2
    found = training_result(subject, first, command="")
    assert found.peak["tflops"] == pytest.approx(sum(peak.tflops for peak in first.peaks))
    assert found.settings["replicas"] == 2
