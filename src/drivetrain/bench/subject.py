"""Prepares `bench train`: the recipe shortened to the measured steps, and its data. Imports no torch."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from drivetrain.bench.generated import generated_data
from drivetrain.bench.repetition import Repetition
from drivetrain.catalogue.data_sets import dataset_info, is_external_dataset
from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSplits
from drivetrain.data.splits import open_data
from drivetrain.plan.inputs import planned_inputs
from drivetrain.plan.training_plan import plan_training
from drivetrain.recipe.checks.input_kind import check_input_options
from drivetrain.recipe.checks.task import check_task_options
from drivetrain.recipe.fields import default_values, defaults_with, plain_values
from drivetrain.recipe.given import Given
from drivetrain.recipe.idle import idle_warnings
from drivetrain.recipe.layout import batch_of
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.notes import Fact, Measuring
from drivetrain.recipe.schema import Recipe

__all__ = ["DataKind", "Subject", "WantedData", "asked_values", "prepare_subject"]

# `--compile auto` tries some updates before the training begins. They need room in the buffer of per-update
# records, which is as long as the training; the measured updates overwrite them later.
_ROOM_TO_COMPARE = 256
DataKind = Literal["real", "host", "device"]
WantedData = Literal["auto", "real", "host", "device"]
_MEASUREMENTS: Mapping[DataKind, Measuring] = {
    "real": Measuring.REAL_DATA,
    "host": Measuring.HOST_NOISE,
    "device": Measuring.DEVICE_NOISE,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """Everything a process needs to measure the training of a recipe.

    `whole_updates` is the length of the full training: `--compile auto` decides by it whether to compile.
    """

    resolved: ResolvedRecipe
    data_kind: DataKind
    repetition: Repetition
    asked: dict[str, Any]
    whole_updates: int
    warnings: tuple[str, ...] = ()

    @property
    def recipe(self) -> Recipe:
        return self.resolved.recipe

    def open_data(self) -> DataSplits:
        """The samples: the recipe's data, or noise."""
        if self.data_kind == "real":
            return open_data(self.recipe)
        return generated_data(self.resolved, samples=_global_batch(self.recipe))


def prepare_subject(
    resolved: ResolvedRecipe, *, data: WantedData, repetition: Repetition
) -> tuple[Subject, DataSplits]:
    """Prepares a recipe for measuring and opens its data; raises BadInputError for bad options or data."""
    given = Given(resolved.recipe, resolved.origins)
    opened, kind, note = _open(resolved, data)
    command = "bench train" if kind == "real" else f"bench train --data {kind}"
    idle = idle_warnings(given, command=command, measurement=_MEASUREMENTS[kind])
    changed = replace(resolved, recipe=_as_long(resolved.recipe, repetition, kind=kind))
    subject = Subject(
        resolved=changed,
        data_kind=kind,
        repetition=repetition,
        asked=asked_values(resolved.recipe),
        whole_updates=_whole_updates(resolved, opened) or repetition.total,
        warnings=(*_of_options_in_use(resolved.warnings, idle=idle), *note, *idle),
    )
    splits = subject.open_data() if opened is None else opened
    check_task_options(given, task=splits.spec.task)
    check_input_options(given, kind=splits.spec.input_kind, words=splits.spec.input_words)
    return subject, splits


def _of_options_in_use(warnings: Sequence[str], *, idle: Sequence[str]) -> list[str]:
    """The warnings but those about options that have no effect here, which has been said of them."""
    ignored = tuple(f"{sentence.partition(' has no effect')[0]} " for sentence in idle)
    return [warning for warning in warnings if not warning.startswith(ignored)]


def _open(resolved: ResolvedRecipe, data: WantedData) -> tuple[DataSplits | None, DataKind, tuple[str, ...]]:
    """The data (None for noise), their kind, and warnings about them."""
    if data in ("host", "device"):
        return None, "host" if data == "host" else "device", ()
    try:
        return open_data(resolved.recipe), "real", ()
    except BadInputError as error:
        if data == "real" or not _may_stand_in(resolved):
            raise
        reason = str(error).rstrip(".")
        said = (
            f"the data cannot be opened ({reason}), so noise on the device is used instead (--data device)."
        )
        return None, "device", (said,)


def _may_stand_in(resolved: ResolvedRecipe) -> bool:
    """Whether noise may replace missing files: not if the user named the folder."""
    dataset = resolved.recipe.dataset
    if is_external_dataset(dataset) or Given(resolved.recipe, resolved.origins).is_typed("data_dir"):
        return False
    return dataset_info(dataset).needs_files


def _whole_updates(resolved: ResolvedRecipe, opened: DataSplits | None) -> int:
    """The number of updates of the full training; 0 if it depends on data that are missing."""
    try:
        if opened is None:
            samples = planned_inputs(resolved.recipe, origins=resolved.origins).samples
        else:
            samples = len(opened.train)
        return plan_training(resolved.recipe, samples=samples).epochs.total_updates
    except BadInputError:
        return 0


def _as_long(recipe: Recipe, repetition: Repetition, *, kind: DataKind) -> Recipe:
    updates = max(repetition.total, _ROOM_TO_COMPARE)
    changes: dict[str, Any] = {
        "max_updates": updates,
        # An epoch may have fewer samples than an update, down to one.
        "num_epochs": updates * _global_batch(recipe),
        "validation": False,
        "checkpoints": False,
        "init_from": None,
        "pretrained": False,
        **defaults_with(Fact.PACE),
    }
    if kind != "real":
        changes |= {"data_placement": "stream", "weight_updates_per_epoch": None}
        changes |= {"folds": None, "fold": None}
    return recipe.model_copy(update=changes)


def _global_batch(recipe: Recipe) -> int:
    return batch_of(recipe).global_batch


def asked_values(recipe: Recipe) -> dict[str, Any]:
    """The options of a recipe that differ from the defaults."""
    return {field: value for field, value in plain_values(recipe).items() if value != default_values()[field]}
