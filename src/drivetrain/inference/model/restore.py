"""Restores a trained model and its checkpoints from a run directory; the data set is not needed."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from drivetrain.catalogue.metrics import shown_metric
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import read_json
from drivetrain.data.preprocess import Preparation, build_preparation
from drivetrain.data.source import DataSpec
from drivetrain.devices.cpu_half import prepare_half_precision
from drivetrain.devices.device import Device, choose_device
from drivetrain.inference.model.spread_model import spread_over_devices
from drivetrain.layers.precision_by_layer import install_precision_list
from drivetrain.models.from_recipe import rebuild_model
from drivetrain.models.half_weights import round_weights
from drivetrain.models.input_form import set_input_kind
from drivetrain.models.memory_format import choose_memory_format
from drivetrain.models.own_model import GivenModel, OwnModel
from drivetrain.recipe.layout import stage_count
from drivetrain.recipe.load import read_recipe_yaml
from drivetrain.recipe.schema import Recipe
from drivetrain.state.saver import restore_model
from drivetrain.store.checkpoint import (
    Checkpoint,
    CorruptCheckpointError,
    load_checkpoint,
    newest_checkpoint,
)
from drivetrain.store.checkpoint_paths import checkpoint_paths, update_of
from drivetrain.store.directory import RunDirectory, open_run
from drivetrain.store.stored_plan import stored_cut, stored_plan


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainedRun:
    """A finished run with its model, for `predict`, `evaluate`, `export` and `bench infer`."""

    directory: RunDirectory
    recipe: Recipe
    spec: DataSpec
    preprocess: Preparation
    model: nn.Module
    device: Device

    def load(self, checkpoint: Checkpoint) -> None:
        """Loads the weights of a checkpoint."""
        restore_model(self.model, checkpoint)
        if self.recipe.precision == "16.16":
            # Averaged weights are stored in 32 bits, but validation saw them rounded to 16.
            round_weights(self.model, getattr(torch, self.recipe.half_type))


def open_trained_run(
    path: str | Path, *, device: str = "auto", model: GivenModel | None = None
) -> TrainedRun:
    """Opens a run and builds its model, or uses one given in Python; call `load` to set trained weights."""
    directory = open_run(path)
    try:
        recipe = Recipe(**read_recipe_yaml(directory.recipe))
        spec = DataSpec.from_json(read_json(directory.data))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise BadInputError(f"RUN {path} cannot be read: {_reason(error)}.") from error
    prepare_half_precision(recipe, device=device)
    chosen = choose_device(device)
    built = rebuild_model(recipe, spec) if model is None else OwnModel(model, recipe).in_place(spec)
    set_input_kind(built, spec.input_kind)
    if recipe.precision_list is not None:
        install_precision_list(built, recipe.precision_list)
    preprocess = build_preparation(recipe, spec)
    image_shape = (preprocess.channels, preprocess.height, preprocess.width)
    choose_memory_format(recipe, built, image_shape=image_shape)
    return TrainedRun(
        directory=directory,
        recipe=recipe,
        spec=spec,
        preprocess=preprocess,
        model=spread_over_devices(
            recipe,
            built,
            device=chosen,
            image_shape=image_shape,
            measured_cut=measured_cut(directory, recipe),
        ),
        device=chosen,
    )


def _reason(error: Exception) -> str:
    return f"data.json has no {error}" if isinstance(error, KeyError) else str(error).rstrip(".")


def measured_cut(directory: RunDirectory, recipe: Recipe) -> tuple[str, ...] | None:
    """The stage boundaries that the run chose by measuring its layers; None if it did not."""
    return stored_cut(stored_plan(directory.plan), stages=stage_count(recipe))


def find_checkpoint(
    directory: RunDirectory, which: str, *, command: str, warn: Callable[[str], None]
) -> Checkpoint:
    """The checkpoint that --checkpoint names, for commands that take only one (see `find_checkpoints`)."""
    if which == "all":
        raise BadInputError(
            f"--checkpoint all is only for evaluate; {command} takes one checkpoint, such as --checkpoint "
            "newest."
        )
    return find_checkpoints(directory, which, warn=warn, choice="newest, best")[0]


def weights_sentence(found: Checkpoint) -> str:
    """Which checkpoint's weights are used, and whether another one validated better."""
    best = found.best
    if best is None:
        return f"using the weights of update {found.update}"
    if best.update == found.update:
        return (
            f"using the weights of update {found.update}, the best by validation {shown_metric(best.metric)}"
        )
    return (
        f"using the weights of update {found.update}; update {best.update} is the best by validation "
        f"{shown_metric(best.metric)} (--checkpoint best uses it)"
    )


def find_checkpoints(
    directory: RunDirectory,
    which: str,
    *,
    warn: Callable[[str], None] = lambda _: None,
    choice: str = "newest, best, all",
) -> list[Checkpoint]:
    """The checkpoints that --checkpoint names: newest, best, all, or the number of an update.

    Calls `warn` for each corrupt checkpoint that is skipped.
    """
    paths = checkpoint_paths(directory.checkpoints)
    if not paths:
        raise BadInputError(f"RUN {directory.path} has no checkpoint; train it with --checkpoints True.")
    newest, problems = newest_checkpoint(directory.checkpoints)
    for problem in problems:
        warn(problem)
    if newest is None:
        raise BadInputError(f"RUN {directory.path} has no intact checkpoint: {problems[0]}")
    if which == "newest":
        return [newest]
    if which == "all":
        return _load_sound(paths, warn)
    update = newest.best_update if which == "best" else which
    if update is None:
        raise BadInputError(
            f"--checkpoint best: {directory.path} was never validated, so it has no best checkpoint; "
            "--checkpoint newest works."
        )
    by_name = {str(update_of(path)): path for path in paths}
    if str(update) not in by_name:
        known = ", ".join(by_name)
        raise BadInputError(
            f"--checkpoint {which} does not exist in {directory.path}; choose one of {choice}, {known}."
        )
    return [_load(by_name[str(update)])]


def _load_sound(paths: list[Path], warn: Callable[[str], None]) -> list[Checkpoint]:
    sound: list[Checkpoint] = []
    for path in paths:
        try:
            sound.append(load_checkpoint(path))
        except CorruptCheckpointError as error:
            warn(f"skipped a corrupt checkpoint: {error}")
    return sound


def _load(path: Path) -> Checkpoint:
    try:
        return load_checkpoint(path)
    except CorruptCheckpointError as error:
        raise BadInputError(f"--checkpoint {update_of(path)} is corrupt: {error}") from error
