"""Inference of a recipe's model and of a run's, at several batch sizes."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import drivetrain
from drivetrain.bench import infer, ready_model
from drivetrain.bench.infer import InferSettings, measure_inference
from drivetrain.bench.ready_model import OpenedModel
from drivetrain.bench.repetition import Repetition
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.passes.forward import Forward
from drivetrain.recipe.load import read_recipe_yaml, resolve_recipe
from tests.run.shown_work import ShownWork

REPETITION = Repetition(warmup_steps=1, steps=2, repeats=2)


@pytest.mark.usefixtures("small_peak")
@pytest.mark.parametrize(
    "overrides",
    [
        {"dataset": "digits", "model": "cifar_resnet8"},
        {"model": "unet_same", "image_size": "16", "model_width": "2", "model_params": "{depth: 1}"},
    ],
    ids=["classifier", "segmentation"],
)
def test_a_recipe(overrides: dict[str, str]) -> None:
    resolved = resolve_recipe(overrides={**overrides, "device": "cpu", "num_threads": "1"})
    settings = InferSettings(batch_sizes=(1, 3), repetition=REPETITION)
    shown = ShownWork()
    found = measure_inference(resolved, settings, reporter=shown, command="x")
    assert shown.names == shown.ended == ["first batch", "bench infer", "measuring the device's peak"]
    assert [entry.name for entry in found.entries] == ["infer batch 1", "infer batch 3"]
    for entry in found.entries:
        assert len(entry.repeats) == 2
        assert entry.figures["p99_seconds"] >= entry.figures["p50_seconds"] > 0
        batch = int(entry.name.removeprefix("infer batch "))
        seconds = sum(repeat["seconds_per_batch"] for repeat in entry.repeats) / 2
        assert entry.figures["seconds_per_batch"] == seconds
        assert entry.figures["images_per_second"] == batch / seconds
        assert "compile_seconds" not in entry.figures
    assert found.settings["threads"] == 1
    assert found.settings["folded_batch_norm"] is True


@pytest.mark.usefixtures("small_peak")
def test_a_model_that_cannot_be_compiled_is_measured_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> Callable[..., None]:
        def run(*_: object) -> None:
            raise RuntimeError("no compiler is here")

        return run

    monkeypatch.setattr(torch, "compile", refuse)
    overrides = {"dataset": "digits", "model": "cifar_resnet8", "device": "cpu", "compile": "on"}
    settings = InferSettings(batch_sizes=(2,), repetition=REPETITION)
    found = measure_inference(
        resolve_recipe(overrides=overrides), settings, reporter=Reporter(quiet=True), command="x"
    )
    assert found.notes[-1].startswith("the model runs uncompiled, because compiling failed: ")
    assert "no compiler is here" in found.notes[-1]
    assert found.entries[0].figures["images_per_second"] > 0


@pytest.mark.usefixtures("small_peak")
def test_compiling_is_timed_for_every_batch_size(monkeypatch: pytest.MonkeyPatch) -> None:
    shapes: set[torch.Size] = set()

    def compile_slowly(function: Forward, **_: object) -> Forward:
        def run(images: torch.Tensor) -> torch.Tensor:
            time.sleep(0.0 if images.shape in shapes else 0.2)
            shapes.add(images.shape)
            return function(images)

        return run

    monkeypatch.setattr(torch, "compile", compile_slowly)
    overrides = {"dataset": "digits", "model": "cifar_resnet8", "device": "cpu", "compile": "on"}
    settings = InferSettings(batch_sizes=(1, 2), repetition=Repetition(warmup_steps=0, steps=2, repeats=1))
    found = measure_inference(
        resolve_recipe(overrides=overrides), settings, reporter=Reporter(quiet=True), command="x"
    )
    for entry in found.entries:
        assert entry.figures["compile_seconds"] >= 0.2
    (note,) = [note for note in found.notes if note.startswith("compiling took")]
    assert "s for batch 1, " in note
    assert note.endswith("s for batch 2")


@pytest.mark.usefixtures("small_peak")
def test_a_run(tmp_path: Path) -> None:
    path = tmp_path / "run"
    drivetrain.train(
        dataset="digits",
        model="mnist_cnn",
        image_size=28,
        limit_train_samples=16,
        micro_batch_size=8,
        num_epochs=1,
        validation=False,
        device="cpu",
        output_dir=str(path),
        quiet=True,
    )
    resolved = resolve_recipe(base=read_recipe_yaml(path / "recipe.yaml"), overrides={"num_threads": "1"})
    settings = InferSettings(batch_sizes=(2,), repetition=REPETITION, run=path, folds=False)
    found = measure_inference(resolved, settings, reporter=Reporter(quiet=True), command="x")
    assert found.workload["image"] == "1x28x28"
    with pytest.raises(
        BadInputError, match="--checkpoint all is only for evaluate; bench infer takes one checkpoint"
    ):
        measure_inference(
            resolved, replace(settings, checkpoint="all"), reporter=Reporter(quiet=True), command="x"
        )


@pytest.mark.usefixtures("small_peak")
def test_a_recording_that_is_declined_at_once_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    declined: list[None] = []

    def decline(function: Forward, **_: object) -> Forward:
        declined.append(None)
        return function

    monkeypatch.setattr(torch, "compile", decline)
    monkeypatch.setattr(infer, "declined_recordings", lambda: len(declined))
    monkeypatch.setattr(infer, "records_compiled", lambda _: True)
    overrides = {"dataset": "digits", "model": "cifar_resnet8", "device": "cpu", "compile": "on"}
    settings = InferSettings(batch_sizes=(2,), repetition=REPETITION)
    found = measure_inference(
        resolve_recipe(overrides=overrides), settings, reporter=Reporter(quiet=True), command="x"
    )
    assert found.entries[0].states == {"compiled": "yes", "captured": "no"}


@pytest.mark.usefixtures("small_peak")
def test_images_of_the_host_are_made_for_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    firsts: list[int] = []
    images = OpenedModel.images

    def noted(model: OpenedModel, batch: int, *, first: int = 0) -> torch.Tensor:
        firsts.append(first)
        return images(model, batch, first=first)

    monkeypatch.setattr(OpenedModel, "images", noted)
    resolved = resolve_recipe(overrides={"dataset": "digits", "model": "cifar_resnet8", "device": "cpu"})
    for data, made in (("host", [0, 3, 6, 9, 12]), ("device", [0])):
        firsts.clear()
        settings = InferSettings(batch_sizes=(3,), repetition=REPETITION, data=data)  # type: ignore[arg-type]
        found = measure_inference(resolved, settings, reporter=Reporter(quiet=True), command="x")
        # The first batch of all is the one that batch norms are folded with.
        assert firsts == [0, *made]
        assert found.settings["data"] == data
        assert ("made on the host" in " ".join(found.notes)) == (data == "host")


@pytest.mark.usefixtures("small_peak")
def test_a_repeat_ends_after_its_seconds_and_has_one_step_at_least() -> None:
    resolved = resolve_recipe(overrides={"dataset": "digits", "model": "cifar_resnet8", "device": "cpu"})
    repetition = replace(REPETITION, steps=1000, most_s=1e-9)
    settings = InferSettings(batch_sizes=(1,), repetition=repetition)
    found = measure_inference(resolved, settings, reporter=Reporter(quiet=True), command="x")
    assert [len(repeat["step_seconds"]) for repeat in found.entries[0].repeats] == [1, 1]
    assert found.settings["seconds"] == 1e-9
    assert found.model["parameters"] == 75002


@pytest.mark.usefixtures("small_peak")
def test_a_captured_forward_pass_is_recorded_before_it_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[int] = []

    class Recorder:
        def __init__(self, device: torch.device) -> None:
            assert device.type == "cpu"

        def warm_up(self, compute: Callable[[], None]) -> None:
            compute()

        def record(self, compute: Callable[[], None]) -> Callable[[], None]:
            compute()
            return lambda: recorded.append(1)

    monkeypatch.setattr(ready_model, "CudaRecorder", Recorder)
    overrides = {"dataset": "digits", "model": "cifar_resnet8", "device": "cpu", "compile": "off"}
    settings = InferSettings(batch_sizes=(1, 2), repetition=REPETITION, captures=True)
    found = measure_inference(
        resolve_recipe(overrides=overrides), settings, reporter=Reporter(quiet=True), command="x"
    )
    assert found.entries[0].states == {"compiled": "no", "captured": "yes"}
    # Each batch size: once before the measurement, one step to warm up, two repeats of two steps.
    assert len(recorded) == 2 * (1 + 1 + 4)


@pytest.mark.usefixtures("small_peak")
def test_the_work_is_that_of_the_folded_model() -> None:
    resolved = resolve_recipe(overrides={"dataset": "digits", "model": "cifar_resnet8", "device": "cpu"})
    work = [
        measure_inference(
            resolved,
            InferSettings(batch_sizes=(1,), repetition=REPETITION, folds=folds),
            reporter=Reporter(quiet=True),
            command="x",
        ).model
        for folds in (True, False)
    ]
    assert work[0]["activation_bytes"] < work[1]["activation_bytes"]
    assert work[0]["parameters"] == work[1]["parameters"] == 75002
    assert work[0]["trainable"] == work[1]["trainable"]
