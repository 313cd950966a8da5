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
from drivetrain.data.bad_samples import refusing_bad_samples
from drivetrain.data.files.image_source import ImageSource
from drivetrain.data.files.white_level import highest_level
from drivetrain.data.fingerprint.fingerprint import Fingerprint
from drivetrain.data.fingerprint.measure import measure
from drivetrain.data.held_out import groups_of
from drivetrain.data.source import DataSplits
from drivetrain.data.splits import open_data
from drivetrain.devices.device import Device, choose_device
from drivetrain.models.libraries.taken_over import take_over
from drivetrain.ranks.threads import cores
from drivetrain.recipe.checks.task import TABLE_FIELDS
from drivetrain.recipe.ending import check_metrics
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe

__all__ = ["choose_by_rules", "fingerprint_of", "fit_memory", "open_whole"]

_OPENING = (
    "dataset",
    "data_dir",
    "channels",
    "num_classes",
    "white_level",
    "ignore_class",
    "on_bad_sample",
    "seed",
    *TABLE_FIELDS,
)
_WITH_WHITE_LEVEL = ("image-folder", "image-table")
_OF_A_NETWORK = ("model", "model_width", "model_params", "image_size", "tile_size")
_MOST_HALVINGS = 8


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
    check_metrics(recipe, task=fingerprint.task, class_names=fingerprint.class_names)
    device = choose_device(recipe.device)
    timed = _Timed(overrides, reporter=reporter)
    with reporter.showing("timing networks"):
        case = decide(fingerprint, device=_facts(device), typed=typed, time=timed.seconds, left_s=left_s)
    fit_memory(case, timed.fitting(_values(case)))
    return fingerprint, case


def fit_memory(case: Case, most: int | None) -> None:
    """Divides an update into micro-batches of at most `most` images, where more do not fit the memory."""
    if most is None or most >= int(case.value("micro_batch_size")):
        return
    whole = case.global_batch
    reason = f"micro-batches of {2 * most} do not fit the memory of {case.device.name}"
    case.decide("micro_batch_size", most, reason)
    # Typed accumulation keeps its count: then an update has fewer images.
    case.decide("global_batch_size", whole, f"an update still takes {whole} images, in several micro-batches")


def _values(case: Case) -> dict[str, Any]:
    return {field: decision.value for field, decision in case.decisions.items()}


def fingerprint_of(recipe: Recipe) -> Fingerprint:
    """The fingerprint of the data that a recipe names, before anything is held out.

    A file that the training would refuse is refused here already.
    """
    data = open_whole(recipe)
    groups = groups_of(data, recipe)
    with refusing_bad_samples():
        return measure(
            data,
            dataset=recipe.dataset,
            groups=None if groups is None else len(groups),
            refuses_unreadable=recipe.on_bad_sample == "error",
        ).fingerprint


def open_whole(recipe: Recipe) -> DataSplits:
    """The data that a recipe names, before anything is held out; of 16-bit grey images the filled bits."""
    whole = whole_data(recipe)
    data = open_data(whole)
    if whole.white_level is None and isinstance(data.train, ImageSource):
        level = highest_level(data.train)
        if level is not None and whole.dataset in _WITH_WHITE_LEVEL:
            return open_data(whole.model_copy(update={"white_level": level}))
    return data


def whole_data(recipe: Recipe) -> Recipe:
    """A recipe that opens the same data as they are: no share held out, no size, no augmentation."""
    task = dataset_task(recipe.dataset) or DEFAULT_TASK
    dense = task_info(task).has_dense_labels
    values = {field: getattr(recipe, field) for field in _OPENING}
    model = task_info(task).example_model if dense else recipe.model
    return Recipe(**values, model=model, validation_fraction=0.0)


def _facts(device: Device) -> DeviceFacts:
    return DeviceFacts(name=device.description, is_accelerator=not device.is_cpu, cores=cores())


class _Timed:
    """Times recipes; where one does not fit the memory, with smaller micro-batches and the same update."""

    def __init__(self, overrides: Mapping[str, Any], *, reporter: Reporter) -> None:
        self._overrides, self._reporter = overrides, reporter
        self._fitting: dict[str, int] = {}

    def fitting(self, decided: Mapping[str, Any]) -> int | None:
        """The largest micro-batch that fits the memory with a network; None if its own does."""
        return self._fitting.get(_network_of(decided))

    def seconds(self, decided: Mapping[str, Any]) -> float:
        """Seconds of a training sample with the options that rules decided."""
        for _ in range(_MOST_HALVINGS):
            options = _divided(decided, self.fitting(decided))
            recipe = take_over(resolve_recipe(overrides=self._overrides, decided=options)).recipe
            try:
                return sample_seconds(recipe, reporter=self._reporter)
            except torch.OutOfMemoryError:
                if recipe.micro_batch_size == 1 or "micro_batch_size" in self._overrides:
                    break
                self._fitting[_network_of(decided)] = recipe.micro_batch_size // 2
        raise BadInputError(
            "No micro-batch fits the memory of the device; choose smaller images, for example with "
            "--image-size 64, or a smaller --model."
        )


def _network_of(decided: Mapping[str, Any]) -> str:
    return str([decided.get(field) for field in _OF_A_NETWORK])


def _divided(decided: Mapping[str, Any], most: int | None) -> dict[str, Any]:
    """The options with smaller micro-batches and an update of the same size.

    A typed accumulation takes the place of the update's size when the recipe is resolved.
    """
    if most is None:
        return dict(decided)
    micro, whole = int(decided["micro_batch_size"]), decided.get("global_batch_size")
    return {**decided, "micro_batch_size": min(micro, most), "global_batch_size": whole or micro}
