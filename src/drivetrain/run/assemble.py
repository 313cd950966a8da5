"""Puts the parts of a run together: data, model, feed, program."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import nn

from drivetrain.cluster.devices import Device
from drivetrain.cluster.replica_group import ALONE, ReplicaGroup
from drivetrain.data.augment.build import build_augmentation
from drivetrain.data.augment.chain import AnyAugmentation
from drivetrain.data.augment.dense_build import build_dense_augmentation
from drivetrain.data.bad_samples import bad_indices
from drivetrain.data.dense_preprocess import DensePreprocess
from drivetrain.data.feed import Feed, make_feed
from drivetrain.data.labels import labels_of
from drivetrain.data.masked_images import pixel_counts
from drivetrain.data.order import SampleOrder
from drivetrain.data.preparation import build_preparation
from drivetrain.data.preprocess import Preparation
from drivetrain.data.source import DataSpec, DataSplits
from drivetrain.data.tile_source import masked_of
from drivetrain.models.prepare import prepare_model
from drivetrain.models.sizes import padded_size
from drivetrain.models.summary import ModelTotals, summarise_model
from drivetrain.models.unet_same import DEFAULT_DEPTH as UNET_SAME_DEPTH
from drivetrain.plan.build import TrainingPlan
from drivetrain.program.batch_norm import check_normalised_values
from drivetrain.program.build import build_program, probe_output
from drivetrain.program.training import TrainingProgram
from drivetrain.recipe.schema import Recipe
from drivetrain.run.evaluator import Evaluator, build_evaluator
from drivetrain.tasks.class_weights import class_weights_of, pixel_class_weights


@dataclass(slots=True, kw_only=True)
class Assembly:
    """A program, how to validate it, and what was said while building it."""

    program: TrainingProgram
    evaluate: Evaluator | None
    preprocess: Preparation
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
    group: ReplicaGroup = ALONE,
    continues: bool = False,
) -> Assembly:
    """Builds what a recipe describes; nothing is written. A run that continues has weights already."""
    preprocess = build_preparation(recipe, data.spec)
    built, warnings = prepare_model(recipe, data.spec, model=model, takes_weights=not continues)
    totals = summarise_model(
        built, channels=preprocess.channels, image_size=preprocess.height, width=preprocess.width
    )
    order = _sample_order(recipe, data=data, plan=plan)
    feed, feed_warnings = _training_feed(
        recipe, data=data, order=order, preprocess=preprocess, plan=plan, device=device, group=group
    )
    program = build_program(
        recipe,
        model=built,
        plan=plan,
        feed=feed,
        order=order,
        device=device,
        spec=data.spec,
        group=group,
        class_weights=_class_weights(recipe, data),
    )
    _check_output(program, data.spec, preprocess)
    check_normalised_values(program.batch_norms, micro_batch_size=plan.batch.micro)
    return Assembly(
        program=program,
        evaluate=_evaluator(program, recipe, data, preprocess),
        preprocess=preprocess,
        totals=totals,
        is_own_model=model is not None,
        warnings=[
            *warnings,
            *feed_warnings,
            *_model_warnings(program),
            *_data_warnings(recipe, data),
            *_size_warnings(recipe, preprocess),
        ],
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
    preprocess: Preparation,
    plan: TrainingPlan,
    device: Device,
    group: ReplicaGroup,
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
        augmentation=_augmentation(recipe, data, preprocess),
        # The same everywhere, so that all replicas choose alike.
        memory_budget_bytes=min(group.gather(device.free_memory_bytes)),
        group=group,
    )


def _augmentation(recipe: Recipe, data: DataSplits, preprocess: Preparation) -> AnyAugmentation | None:
    if isinstance(preprocess, DensePreprocess):
        return build_dense_augmentation(recipe, data.spec, preprocess=preprocess)
    return build_augmentation(recipe, data.spec, source=data.train)


def _model_warnings(program: TrainingProgram) -> list[str]:
    apart = ", and on each replica by its own samples alone" if program.group.size > 1 else ""
    return [
        f"--model's batch norm {name} is of a kind of its own, so its statistics move at every "
        f"micro-batch{apart}."
        for name in program.batch_norms.unowned
    ]


def _data_warnings(recipe: Recipe, data: DataSplits) -> list[str]:
    if recipe.validation and data.validation is None:
        return ["there are no validation samples; --validation-fraction 0.2 holds some out."]
    return []


def _size_warnings(recipe: Recipe, preprocess: Preparation) -> list[str]:
    """Says once that a model pads images whose sides it cannot halve often enough."""
    if recipe.model != "unet_same":
        return []
    depth = int(recipe.model_params.get("depth", UNET_SAME_DEPTH))
    size = (preprocess.height, preprocess.width)
    padded = tuple(padded_size(side, depth=depth) for side in size)
    if padded == size:
        return []
    return [
        f"images of {size[0]}x{size[1]} are padded to {padded[0]}x{padded[1]} inside --model unet_same, "
        f"whose {depth} poolings need multiples of {2**depth}, and its output is cropped again."
    ]


def _class_weights(recipe: Recipe, data: DataSplits) -> NDArray[np.float32] | None:
    if not recipe.class_weights:
        return None
    num_classes = data.spec.num_classes
    if data.spec.task == "segmentation":
        counts = pixel_counts(masked_of(data.train), num_classes=num_classes)
        return pixel_class_weights(recipe.class_weights, counts, num_classes=num_classes)
    return class_weights_of(recipe.class_weights, labels_of(data.train), num_classes=num_classes)


def _check_output(program: TrainingProgram, spec: DataSpec, preprocess: Preparation) -> None:
    shape = (preprocess.channels, preprocess.height, preprocess.width)
    output = probe_output(program.model, shape=shape, device=program.device)
    program.task.check_output(output, batch=2, num_classes=spec.num_classes, size=preprocess.label_size)


def _evaluator(
    program: TrainingProgram, recipe: Recipe, data: DataSplits, preprocess: Preparation
) -> Evaluator | None:
    if data.validation is None or not recipe.validation:
        return None
    return build_evaluator(
        recipe,
        model=program.model,
        source=data.validation,
        preprocess=preprocess,
        device=program.device,
        group=program.group,
    )
