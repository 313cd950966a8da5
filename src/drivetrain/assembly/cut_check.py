"""Compares a model in stages with the whole model before the first update, on its first micro-batch.

Code that means something else in stages would otherwise train a different model without a word. One process
runs a copy of the whole model and a copy with all stages, forward and backward, from equal states.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from drivetrain.assembly.cut_difference import find_difference, is_same
from drivetrain.assembly.cut_trial import Outcome, Trial, run_trial
from drivetrain.assembly.prepared_model import ProgramInputs
from drivetrain.core.factories import describe_failure
from drivetrain.devices.device import Device
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.recipe.layout import stage_count
from drivetrain.recipe.schema import Recipe

__all__ = ["CutReport", "compare_cut"]

# Two, because a batch norm cannot normalise a single value.
_FEW_SAMPLES = 2
# How often the weights are held: copy, flat copy, gradients, and the gradients of the other run. A forward
# pass needs the first two.
_WEIGHT_COPIES, _WEIGHT_COPIES_FORWARD = 4, 2
# The values of all layers are kept for the backward pass, whose gradients and temporary tensors come on top.
_VALUE_COPIES, _VALUE_COPIES_FORWARD = 3, 1
_CPU = Device(torch_device=torch.device("cpu"), reason="the whole model does not fit on the device")


@dataclass(frozen=True, slots=True, kw_only=True)
class CutReport:
    """What the comparison found: a sentence that says what was compared, a warning, or why to refuse."""

    compared: str | None = None
    warnings: tuple[str, ...] = ()
    refusal: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """One way to compare, from the best to the smallest."""

    device: Device
    samples: int
    has_gradients: bool


def compare_cut(recipe: Recipe, model: nn.Module, *, inputs: ProgramInputs, images: Tensor) -> CutReport:
    """Compares the stages of `inputs` with the whole model, as thoroughly as memory allows.

    The model must not be prepared for training yet. It is not changed, and no generator is.
    """
    plan = inputs.stage_plan
    assert plan is not None, "only a model in stages can be compared"
    for attempt in _attempts(inputs.device, samples=len(images)):
        if _needed_bytes(model, plan, attempt) > attempt.device.free_memory_bytes:
            continue
        trial = Trial(
            recipe=_on_device(recipe, attempt.device, own=inputs.device),
            model=model,
            plan=plan,
            inputs=replace(inputs, device=attempt.device),
            images=images[: attempt.samples],
            has_gradients=attempt.has_gradients,
        )
        try:
            return _compare(trial, is_full=attempt.samples == len(images))
        except torch.OutOfMemoryError:
            continue
    return _not_compared(recipe, "there is not enough free memory for the whole model")


def _attempts(own: Device, *, samples: int) -> Iterator[_Attempt]:
    few = min(_FEW_SAMPLES, samples)
    sizes = [(own, samples), (own, few)] if samples > few else [(own, few)]
    for has_gradients in (True, False):
        for device, size in sizes:
            yield _Attempt(device=device, samples=size, has_gradients=has_gradients)
    if not own.is_cpu:
        for has_gradients in (True, False):
            yield _Attempt(device=_CPU, samples=few, has_gradients=has_gradients)


def _needed_bytes(model: nn.Module, plan: StagePlan, attempt: _Attempt) -> int:
    """An upper estimate; code inside a layer that is not split may need more."""
    weights = sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
    values = sum(value.num_bytes for value in plan.shapes.values.values())
    planned_samples = plan.shapes.values[plan.traced.input].shape[0]
    per_attempt = values * attempt.samples // planned_samples
    if attempt.has_gradients:
        return _WEIGHT_COPIES * weights + _VALUE_COPIES * per_attempt
    return _WEIGHT_COPIES_FORWARD * weights + _VALUE_COPIES_FORWARD * per_attempt


def _on_device(recipe: Recipe, device: Device, *, own: Device) -> Recipe:
    """The recipe of an attempt: a CPU that stands in for another device computes in float32."""
    if device.is_cpu == own.is_cpu:
        return recipe
    return recipe.model_copy(update={"precision": "32.32", "precision_list": None})


def _compare(trial: Trial, *, is_full: bool) -> CutReport:
    try:
        whole = run_trial(trial, in_stages=False)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        return _not_compared(trial.recipe, f"the whole model failed ({describe_failure(error)})")
    try:
        cut = run_trial(trial, in_stages=True)
    except torch.OutOfMemoryError:
        raise
    except Exception as error:
        words = describe_failure(error)
        if not is_full:
            return _not_compared(trial.recipe, f"they failed with {len(trial.images)} samples ({words})")
        return _refused(trial.recipe, f"they fail where the whole model does not ({words})")
    if is_same(whole, cut):
        return CutReport(compared=_compared_in_words(trial))
    del cut
    return _explained(trial, whole)


def _explained(trial: Trial, whole: Outcome) -> CutReport:
    """Runs both once more and keeps the values of all layers, to name the one that differs."""
    again = run_trial(trial, in_stages=False, keeps_values=True)
    difference = None
    if is_same(whole, again):
        cut = run_trial(trial, in_stages=True, keeps_values=True)
        difference = find_difference(again, cut, traced=trial.plan.traced)
    return _refused(trial.recipe, difference or "it computes something else each time it runs")


def _compared_in_words(trial: Trial) -> str:
    what = "output, gradients and buffers" if trial.has_gradients else "output and buffers"
    samples = f"{len(trial.images)} sample{'s' if len(trial.images) > 1 else ''}"
    return f"{what} of {samples} agree with the whole model"


def _option(recipe: Recipe) -> str:
    stages = stage_count(recipe)
    return f"--stages {stages}" if stages > 1 else "--recomputation True"


def _not_compared(recipe: Recipe, why: str) -> CutReport:
    warning = (
        f"the pieces of {_option(recipe)} were not compared with the whole model before the first update, "
        f"because {why}."
    )
    return CutReport(warnings=(warning,))


def _refused(recipe: Recipe, difference: str) -> CutReport:
    option = _option(recipe)
    return CutReport(
        refusal=f"{option} would change what --model computes: compared with the whole model, {difference}; "
        f"train without {option.split()[0]}, or change the code of --model there."
    )
