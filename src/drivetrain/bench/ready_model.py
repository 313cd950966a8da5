"""Prepares a model for `bench infer`: opens it, folds its batch norms, compiles or captures it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from torch import Tensor, nn

from drivetrain.assembly.prepared_model import place_model
from drivetrain.bench.clock import StepClock
from drivetrain.bench.generated import generated_spec, noise_images
from drivetrain.bench.repetition import Repetition
from drivetrain.console.reporter import Reporter
from drivetrain.core.factories import describe_failure
from drivetrain.data.preprocess import Preparation, build_preparation, channels_last_view
from drivetrain.devices.device import Device
from drivetrain.inference.model.fold_batch_norm import fold_where_same
from drivetrain.inference.model.optimised import build_inference
from drivetrain.inference.model.restore import find_checkpoint, open_trained_run
from drivetrain.models.from_recipe import is_own_model, rebuild_model
from drivetrain.models.memory_format import choose_memory_format
from drivetrain.passes.forward import Forward, Precision, choose_precision
from drivetrain.program.capture_choice import CudaRecorder
from drivetrain.recipe.load import ResolvedRecipe

__all__ = [
    "InferData",
    "InferSettings",
    "OpenedModel",
    "ReadyModel",
    "first_call_s",
    "make_ready",
    "open_model",
]


InferData = Literal["device", "host"]
# Libraries choose algorithms and allocate workspaces in the first passes, which must not be recorded.
_WARM_UPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class InferSettings:
    """What to measure, and how often; if `run` is given, the weights of that run are used.

    `data`: images that lie on the device, or images that are made on the host and moved for every batch.
    `captures`: the uncompiled forward pass is recorded once as a CUDA graph and replayed.
    """

    batch_sizes: tuple[int, ...]
    repetition: Repetition
    folds: bool = True
    run: Path | None = None
    checkpoint: str = "newest"
    data: InferData = "device"
    captures: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedModel:
    """A model on its device, with the preprocessing of its images; `is_known`: one of Drivetrain's own."""

    model: nn.Module
    preprocess: Preparation
    device: Device
    precision: Precision
    is_known: bool

    def images(self, batch: int, *, first: int = 0) -> Tensor:
        """A batch of noise from image number `first`, made on the host and preprocessed on the device."""
        indices = np.arange(first, first + batch, dtype=np.int64)
        stored = torch.from_numpy(noise_images(self.preprocess.spec, indices))
        if not self.device.is_cpu:
            stored = stored.pin_memory()
        moved = stored.to(self.device.torch_device, non_blocking=True)
        return self.preprocess(channels_last_view(moved)).contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyModel:
    """The forward function to measure, the model that it computes, and notes for the result.

    `compile_s` is the time of compiling for the first batch size; None without compilation.
    """

    forward: Forward
    model: nn.Module
    compile_s: float | None = None
    notes: list[str]
    is_captured: bool = False

    @property
    def is_compiled(self) -> bool:
        return self.compile_s is not None


def open_model(
    resolved: ResolvedRecipe, settings: InferSettings, *, device: Device, reporter: Reporter
) -> OpenedModel:
    """The model of a run with its trained weights, or the model of a recipe with initial weights."""
    recipe = resolved.recipe
    if settings.run is not None:
        run = open_trained_run(settings.run, device=str(device.torch_device))
        found = find_checkpoint(run.directory, settings.checkpoint, command="bench infer", warn=reporter.warn)
        run.load(found)
        model, preprocess, is_known = run.model, run.preprocess, is_own_model(run.recipe)
    else:
        spec = generated_spec(resolved)
        built = rebuild_model(recipe, spec)
        preprocess, is_known = build_preparation(recipe, spec), is_own_model(recipe)
        image_shape = (preprocess.channels, preprocess.height, preprocess.width)
        for sentence in choose_memory_format(recipe, built, image_shape=image_shape):
            reporter.warn(sentence)
        model = place_model(built, device)
    return OpenedModel(
        model=model,
        preprocess=preprocess,
        device=device,
        precision=choose_precision(recipe, device),
        is_known=is_known,
    )


def make_ready(subject: OpenedModel, settings: InferSettings, *, compiles: bool) -> ReadyModel:
    """Folds batch norms and compiles if asked to; notes what fails and continues without it."""
    images = subject.images(settings.batch_sizes[0])
    model, precision, notes = subject.model.eval(), subject.precision, []
    if settings.folds:
        model, why_not = fold_where_same(model, images[:1], precision=precision, is_known=subject.is_known)
        notes += [] if why_not is None else [why_not]
    plain = build_inference(model, precision=precision)
    if settings.captures:
        captured = _Captured(plain, device=subject.device)
        return ReadyModel(forward=captured, model=model, notes=notes, is_captured=True)
    if not compiles:
        return ReadyModel(forward=plain, model=model, notes=notes)
    compiled = build_inference(model, precision=precision, compiles=True, fuses=subject.is_known)
    try:
        compile_s = first_call_s(compiled, images, device=subject.device)
    except Exception as error:
        notes.append(f"the model runs uncompiled, because compiling failed: {describe_failure(error)}")
        return ReadyModel(forward=plain, model=model, notes=notes)
    return ReadyModel(forward=compiled, model=model, compile_s=compile_s, notes=notes)


class _Captured:
    """A forward pass that is recorded once for each shape; the next call overwrites the logits."""

    def __init__(self, forward: Forward, *, device: Device) -> None:
        self._forward, self._device = forward, device
        self._recorded: dict[torch.Size, tuple[Tensor, Callable[[], None], Tensor]] = {}

    def __call__(self, images: Tensor) -> Tensor:
        if images.shape not in self._recorded:
            self._recorded[images.shape] = self._record(images)
        inputs, replay, logits = self._recorded[images.shape]
        if images is not inputs:
            inputs.copy_(images)
        replay()
        return logits

    def _record(self, inputs: Tensor) -> tuple[Tensor, Callable[[], None], Tensor]:
        recorder, found = CudaRecorder(self._device.torch_device), []

        def compute() -> None:
            found.append(self._forward(inputs))

        for _ in range(_WARM_UPS):
            recorder.warm_up(compute)
        replay = recorder.record(compute)
        return inputs, replay, found[-1]


@torch.inference_mode()
def first_call_s(compiled: Forward, images: Tensor, *, device: Device) -> float:
    """Seconds of the first call with images of this shape, which includes compiling."""
    clock = StepClock(device)
    compiled(images)
    clock.stop()
    return clock.total_s
