"""Measures data and device for the rules, and times their candidates."""

from collections.abc import Callable, Mapping
from typing import Any

import torch

from drivetrain.auto.case import Case, DeviceFacts
from drivetrain.auto.decide import decide
from drivetrain.auto.speed import sample_seconds
from drivetrain.catalogue.data_sets import dataset_task
from drivetrain.catalogue.tasks import DEFAULT_TASK, task_info
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.core.progress import showing_progress
from drivetrain.data.fingerprint.fingerprint import Fingerprint
from drivetrain.data.fingerprint.measure import measure
from drivetrain.data.held_out import groups_of
from drivetrain.data.splits import open_data
from drivetrain.devices.device import Device, choose_device
from drivetrain.models.libraries.taken_over import take_over
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe

__all__ = ["choose_by_rules", "fingerprint_of", "whole_data"]

_OPENING = (
    "dataset",
    "data_dir",
    "channels",
    "num_classes",
    "white_level",
    "ignore_class",
    "on_bad_sample",
    "label_column",
    "seed",
)
_MOST_HALVINGS = 6


def choose_by_rules(
    recipe: Recipe,
    *,
    typed: Mapping[str, Any],
    overrides: Mapping[str, Any],
    left_s: Callable[[], float],
    reporter: Reporter,
) -> tuple[Fingerprint, Case]:
    """The fingerprint of a recipe's data, and what the rules decide. `overrides` are the options as typed."""
    with showing_progress(reporter):
        fingerprint = fingerprint_of(recipe)
    device = choose_device(recipe.device)
    timed = _Timed(overrides, reporter=reporter)
    with reporter.showing("timing networks"):
        case = decide(fingerprint, device=_facts(device), typed=typed, time=timed.seconds, left_s=left_s)
    _fit_memory(case, timed.micro_batch_size)
    return fingerprint, case


def _fit_memory(case: Case, most: int | None) -> None:
    """Divides an update into micro-batches that fit the memory."""
    whole = int(case.value("micro_batch_size"))
    if most is None or most >= whole:
        return
    reason = f"micro-batches of {2 * most} do not fit the device's memory"
    case.decide("micro_batch_size", most, reason)
    case.decide("global_batch_size", whole, "what an update would have without that limit")


def fingerprint_of(recipe: Recipe) -> Fingerprint:
    """The fingerprint of the data that a recipe names, before anything is held out."""
    data = open_data(whole_data(recipe))
    groups = groups_of(data, recipe)
    return measure(data, dataset=recipe.dataset, groups=None if groups is None else len(groups)).fingerprint


def whole_data(recipe: Recipe) -> Recipe:
    """A recipe that opens the same data as they are: no share held out, no size, no augmentation."""
    task = dataset_task(recipe.dataset) or DEFAULT_TASK
    dense = task_info(task).has_dense_labels
    values = {field: getattr(recipe, field) for field in _OPENING if field in Recipe.model_fields}
    model = task_info(task).example_model if dense else recipe.model
    return Recipe(**values, model=model, validation_fraction=0.0)


def _facts(device: Device) -> DeviceFacts:
    return DeviceFacts(
        name=device.description,
        is_accelerator=not device.is_cpu,
        memory_bytes=device.total_memory_bytes,
    )


class _Timed:
    """Times recipes; where one does not fit the memory, with smaller micro-batches and the same update."""

    def __init__(self, overrides: Mapping[str, Any], *, reporter: Reporter) -> None:
        self._overrides, self._reporter = overrides, reporter
        self.micro_batch_size: int | None = None

    def seconds(self, decided: Mapping[str, Any]) -> float:
        """Seconds of a training sample with the options that rules decided."""
        for _ in range(_MOST_HALVINGS):
            recipe = take_over(
                resolve_recipe(overrides=self._overrides, decided=self._fitting(decided))
            ).recipe
            try:
                return sample_seconds(recipe, reporter=self._reporter)
            except torch.OutOfMemoryError:
                if recipe.micro_batch_size == 1 or "micro_batch_size" in self._overrides:
                    break
                self.micro_batch_size = recipe.micro_batch_size // 2
        raise BadInputError(
            "No micro-batch fits the memory of the device; choose smaller images, for example with "
            "--image-size 64, or a smaller --model."
        )

    def _fitting(self, decided: Mapping[str, Any]) -> dict[str, Any]:
        if self.micro_batch_size is None or "micro_batch_size" not in decided:
            return dict(decided)
        whole = int(decided["micro_batch_size"])
        return {
            **decided,
            "micro_batch_size": min(whole, self.micro_batch_size),
            "global_batch_size": whole,
        }
