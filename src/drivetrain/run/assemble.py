"""Puts the parts of a run together: data, model, feed, program."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from drivetrain.cluster.devices import Device
from drivetrain.data.augment.build import build_augmentation
from drivetrain.data.bad_samples import bad_indices
from drivetrain.data.feed import EvaluationFeed, Feed, fits_on_device, make_feed
from drivetrain.data.labels import labels_of
from drivetrain.data.order import SampleOrder
from drivetrain.data.preprocess import Preprocess
from drivetrain.data.source import DataSpec, DataSplits, Source
from drivetrain.models.prepare import prepare_model
from drivetrain.models.summary import ModelTotals, summarise_model
from drivetrain.plan.build import TrainingPlan
from drivetrain.program.batch_norm import check_normalised_values
from drivetrain.program.build import build_program, build_task, probe_output
from drivetrain.program.evaluation import Evaluation, evaluate_model
from drivetrain.program.training import TrainingProgram
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.class_weights import class_weights_of

_VALIDATION_PIXELS = 8 * 1024 * 1024
_LARGEST_VALIDATION_BATCH = 512


@dataclass(slots=True, kw_only=True)
class Assembly:
    """A program, how to validate it, and what was said while building it."""

    program: TrainingProgram
    evaluate: Callable[[], Evaluation] | None
    preprocess: Preprocess
    totals: ModelTotals
    is_own_model: bool
    warnings: list[str]


def assemble(
    recipe: Recipe,
    *,
    data: DataSplits,
    model: nn.Module | None,
    plan: TrainingPlan,
    device: Device,
    continues: bool = False,
) -> Assembly:
    """Builds what a recipe describes; nothing is written. A run that continues has weights already."""
    preprocess = Preprocess(data.spec, recipe.image_size)
    built, warnings = prepare_model(recipe, data.spec, model=model, takes_weights=not continues)
    totals = summarise_model(
        built, channels=preprocess.channels, image_size=preprocess.height, width=preprocess.width
    )
    order = _sample_order(recipe, data=data, plan=plan)
    feed, feed_warnings = _training_feed(
        recipe, data=data, order=order, preprocess=preprocess, plan=plan, device=device
    )
    program = build_program(
        recipe,
        model=built,
        plan=plan,
        feed=feed,
        order=order,
        device=device,
        class_weights=_class_weights(recipe, data),
    )
    _check_output(program, data.spec, preprocess)
    check_normalised_values(program.batch_norms, micro_batch_size=plan.batch.micro)
    return Assembly(
        program=program,
        evaluate=_evaluator(program, recipe, data.validation, preprocess) if recipe.validation else None,
        preprocess=preprocess,
        totals=totals,
        is_own_model=model is not None,
        warnings=[*warnings, *feed_warnings, *_model_warnings(program), *_data_warnings(recipe, data)],
    )


def _sample_order(recipe: Recipe, *, data: DataSplits, plan: TrainingPlan) -> SampleOrder:
    return SampleOrder(
        seed=recipe.seed,
        samples=len(data.train),
        global_batch=plan.batch.global_batch,
        updates_per_epoch=plan.epochs.updates_per_epoch,
        remainder=recipe.remainder,
        shuffle=recipe.shuffle,
        bad=tuple(bad_indices(data.train).tolist()),
    )


def _training_feed(
    recipe: Recipe,
    *,
    data: DataSplits,
    order: SampleOrder,
    preprocess: Preprocess,
    plan: TrainingPlan,
    device: Device,
) -> tuple[Feed, list[str]]:
    return make_feed(
        data.train,
        order=order,
        preprocess=preprocess,
        micro_batch_size=plan.batch.micro,
        device=device.torch_device,
        data_placement=recipe.data_placement,
        num_workers=recipe.num_workers,
        accelerator_side_preprocess=recipe.accelerator_side_preprocess,
        eight_bit_transfer=recipe.eight_bit_transfer,
        augmentation=build_augmentation(recipe, data.spec, source=data.train),
        memory_budget_bytes=device.free_memory_bytes,
    )


def _model_warnings(program: TrainingProgram) -> list[str]:
    return [
        f"--model's batch norm {name} is of a kind of its own, so its statistics move at every micro-batch."
        for name in program.batch_norms.unowned
    ]


def _data_warnings(recipe: Recipe, data: DataSplits) -> list[str]:
    if recipe.validation and data.validation is None:
        return ["there are no validation samples; --validation-fraction 0.2 holds some out."]
    return []


def _class_weights(recipe: Recipe, data: DataSplits) -> NDArray[np.float32] | None:
    if not recipe.class_weights:
        return None
    return class_weights_of(recipe.class_weights, labels_of(data.train), num_classes=data.spec.num_classes)


def validation_batch_size(recipe: Recipe, preprocess: Preprocess) -> int:
    """As many images as fill a comfortable number of pixels, unless the recipe says."""
    if recipe.validation_micro_batch_size is not None:
        return recipe.validation_micro_batch_size
    pixels = preprocess.channels * preprocess.height * preprocess.width
    return max(1, min(_LARGEST_VALIDATION_BATCH, _VALIDATION_PIXELS // pixels))


def _check_output(program: TrainingProgram, spec: DataSpec, preprocess: Preprocess) -> None:
    shape = (preprocess.channels, preprocess.height, preprocess.width)
    output = probe_output(program.model, shape=shape, device=program.device)
    program.task.check_output(output, batch=2, num_classes=spec.num_classes)


def _evaluator(
    program: TrainingProgram, recipe: Recipe, source: Source | None, preprocess: Preprocess
) -> Callable[[], Evaluation] | None:
    if source is None:
        return None
    feed = evaluation_feed(recipe, source=source, preprocess=preprocess, device=program.device)

    def evaluate() -> Evaluation:
        return evaluate_model(
            program.model,
            feed,
            task=build_task(recipe),
            num_classes=preprocess.spec.num_classes,
            wide_dtype=program.device.wide_dtype,
        )

    return evaluate


def evaluation_feed(
    recipe: Recipe, *, source: Source, preprocess: Preprocess, device: Device
) -> EvaluationFeed:
    """Every sample of a source once, in batches this device runs well."""
    return EvaluationFeed(
        source,
        preprocess=preprocess,
        batch_size=validation_batch_size(recipe, preprocess),
        device=device.torch_device,
        resident=recipe.data_placement != "stream"
        and fits_on_device(source, preprocess=preprocess, memory_budget_bytes=device.free_memory_bytes),
        num_workers=recipe.num_workers or 0,
    )
