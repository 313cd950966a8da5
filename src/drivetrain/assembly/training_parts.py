"""Assembles a run from data, model, feed, program and evaluator, and collects warnings."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase

from drivetrain.assembly.cut_check import CutReport, compare_cut
from drivetrain.assembly.cut_trial import kept_generators
from drivetrain.assembly.prepared_model import ProgramInputs
from drivetrain.assembly.program import build_program, probe_output
from drivetrain.assembly.training_feed import augmentation_of, first_images, sample_order, training_feed
from drivetrain.catalogue.models import padded_size
from drivetrain.core.errors import BadInputError
from drivetrain.data.advice import options_to_hold_out
from drivetrain.data.preprocess import Preparation, build_preparation
from drivetrain.data.source import DataSplits
from drivetrain.data.sources.given_samples import scale_warning
from drivetrain.devices.device import Device
from drivetrain.inference.model.evaluator import Evaluator, build_evaluator
from drivetrain.layers.batch_norm import check_normalised_values, idle_norm_options, norm_options
from drivetrain.layers.draws.facts import DRAWS_OBSTACLE
from drivetrain.layers.draws.rehearsal import find_draws
from drivetrain.models.from_recipe import is_own_model, prepare_model
from drivetrain.models.memory_format import choose_memory_format
from drivetrain.models.module_values import unstored_places
from drivetrain.models.rehearsal import Rehearsal, rehearse
from drivetrain.models.requirements import (
    require_plain_state,
    require_tensor_in_training,
)
from drivetrain.models.summary import ModelTotals, summarise_model
from drivetrain.models.zoo.unet_same import DEFAULT_DEPTH as UNET_SAME_DEPTH
from drivetrain.optim.block_rates import block_factors, check_block_rates
from drivetrain.pipeline.cutting.marks import marked_stages
from drivetrain.pipeline.cutting.stage_plan import StagePlan, plan_stages
from drivetrain.pipeline.memory.outline import RunOutline, outline_run
from drivetrain.plan.training_plan import TrainingPlan
from drivetrain.program.training_program import TrainingProgram
from drivetrain.ranks.replica_group import ALONE, RankGroups, ReplicaGroup, split_ranks
from drivetrain.recipe.fields import default_values, fields_of_validation
from drivetrain.recipe.given import Given
from drivetrain.recipe.layout import devices_per_replica, rank_count, stage_count
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.from_recipe import training_class_weights


@dataclass(slots=True, kw_only=True)
class Assembly:
    """A program, its evaluator, and the warnings collected while building them."""

    program: TrainingProgram
    evaluate: Evaluator | None
    preprocess: Preparation
    totals: ModelTotals
    is_own_model: bool
    warnings: list[str]
    outline: RunOutline | None = None
    block_factors: dict[str, float] = field(default_factory=dict)
    """By what the learning rate of each block is multiplied, from the stem to the head."""
    compared: str | None = None
    """What was compared between the stages and the whole model before the first update."""


def assemble(
    recipe: Recipe,
    *,
    data: DataSplits,
    model: nn.Module | None,
    plan: TrainingPlan,
    device: Device,
    group: ReplicaGroup = ALONE,
    continues: bool = False,
    measured_cut: tuple[str, ...] | None = None,
    compares_cut: bool = False,
) -> Assembly:
    """Builds all parts of a training; writes nothing.

    `continues`: weights come from a checkpoint, so none are initialised from elsewhere. `measured_cut`: where
    --split-by time has cut the model in an earlier part of the run. `compares_cut`: a model in stages is
    compared with the whole model, and refused if it computes something else.
    """
    setting = _Setting(
        recipe=recipe,
        data=data,
        plan=plan,
        device=device,
        group=group,
        groups=split_ranks(group, devices_per_replica=devices_per_replica(recipe)),
        preprocess=build_preparation(recipe, data.spec),
    )
    built, warnings = prepare_model(recipe, data.spec, model=model, takes_weights=not continues)
    check_block_rates(recipe, built)
    factors = block_factors(recipe, built)
    totals, rehearsal = _check_model(setting, built)
    warnings += choose_memory_format(recipe, built, image_shape=setting.image_shape)
    warnings += _norm_warnings(recipe, built, plan=plan, rehearsal=rehearsal)
    stage_plan = _plan_stages(setting, built, measured_cut=measured_cut)
    outline = _outline(setting, built, stage_plan)
    inputs, feed_warnings = _program_inputs(setting, built, stage_plan)
    cut_report = _compare_cut(setting, built, inputs) if compares_cut else CutReport()
    program = build_program(recipe, model=built, inputs=inputs)
    _check_output(program, data, setting.preprocess)
    check_normalised_values(program.batch_norms, micro_batch_size=plan.batch.micro)
    return Assembly(
        program=program,
        evaluate=_evaluator(program, recipe, data, setting.preprocess),
        preprocess=setting.preprocess,
        totals=totals,
        is_own_model=model is not None,
        outline=outline,
        block_factors=factors,
        warnings=[*warnings, *feed_warnings, *_warnings(setting, built, program), *cut_report.warnings],
        compared=cut_report.compared,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Setting:
    """The inputs of an assembly on one rank of `group`."""

    recipe: Recipe
    data: DataSplits
    plan: TrainingPlan
    device: Device
    group: ReplicaGroup
    groups: RankGroups
    preprocess: Preparation

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """Channels, height and width of the model's input."""
        return (self.preprocess.channels, self.preprocess.height, self.preprocess.width)


def _check_model(setting: _Setting, model: nn.Module) -> tuple[ModelTotals, Rehearsal | None]:
    """Refuses models that cannot be trained; counts parameters and FLOPs, finds what a pass changes."""
    require_plain_state(model, ranks=rank_count(setting.recipe))
    channels, height, width = setting.image_shape
    totals = summarise_model(model, channels=channels, image_size=height, width=width)
    if is_own_model(setting.recipe):
        return totals, None
    require_tensor_in_training(model, image_shape=setting.image_shape, is_cpu=setting.device.is_cpu)
    return totals, rehearse(model, image_shape=setting.image_shape, flops=totals.flops)


def _plan_stages(
    setting: _Setting, model: nn.Module, *, measured_cut: tuple[str, ...] | None
) -> StagePlan | None:
    return plan_stages(
        setting.recipe,
        model,
        image_shape=setting.image_shape,
        micro=setting.plan.batch.micro,
        accumulation=setting.plan.batch.accumulation,
        device=setting.device.torch_device,
        # Measured times differ between ranks, but all must cut alike: rank 0 decides.
        choose=lambda measure: _from_first(setting.group, measure, known=measured_cut),
    )


def _outline(setting: _Setting, model: nn.Module, stage_plan: StagePlan | None) -> RunOutline | None:
    """The memory and schedule in plan.json and in a profile; None except on rank 0, which writes them."""
    if not setting.group.is_first:
        return None
    images = (setting.plan.batch.micro, *setting.image_shape)
    profiles = setting.recipe.profile is not None
    return outline_run(setting.recipe, model, plan=stage_plan, images=images, is_needed=profiles)


def _program_inputs(
    setting: _Setting, model: nn.Module, stage_plan: StagePlan | None
) -> tuple[ProgramInputs, list[str]]:
    """Feed and other inputs of this rank's program, and warnings about them; a collective."""
    recipe, data = setting.recipe, setting.data
    order = sample_order(recipe, data=data, plan=setting.plan)
    feed, warnings = training_feed(
        recipe,
        data=data,
        order=order,
        preprocess=setting.preprocess,
        augmentation=augmentation_of(recipe, data, setting.preprocess),
        micro_batch_size=setting.plan.batch.micro,
        device=setting.device,
        groups=setting.groups,
        stage_plan=stage_plan,
    )
    inputs = ProgramInputs(
        plan=setting.plan,
        feed=feed,
        order=order,
        device=setting.device,
        spec=data.spec,
        image_shape=setting.image_shape,
        groups=setting.groups,
        class_weights=training_class_weights(recipe, data),
        stage_plan=stage_plan,
        draw_facts=find_draws(recipe, model, image_shape=setting.image_shape),
    )
    return inputs, warnings


def _compare_cut(setting: _Setting, model: nn.Module, inputs: ProgramInputs) -> CutReport:
    """Compares a model in stages with the whole model on rank 0; all ranks refuse it together."""
    if inputs.stage_plan is None:
        return CutReport()
    own = None
    if setting.group.is_first:
        # A data set may draw from generators too, as random transforms do.
        with kept_generators(setting.device):
            images = first_images(
                setting.data,
                order=inputs.order,
                preprocess=setting.preprocess,
                augmentation=augmentation_of(setting.recipe, setting.data, setting.preprocess),
                micro_batch_size=setting.plan.batch.micro,
            )
        own = compare_cut(setting.recipe, model, inputs=inputs, images=images)
        setting.device.forget_peak_memory()
    report: CutReport = setting.group.from_first(own)
    if report.refusal is not None:
        raise BadInputError(report.refusal)
    return report


def _warnings(setting: _Setting, model: nn.Module, program: TrainingProgram) -> list[str]:
    recipe = setting.recipe
    return [
        *_unused_marks(recipe, model),
        *_unowned_warnings(recipe, program),
        *_draw_warnings(program),
        *_compile_warnings(recipe, program),
        *_unstored_warnings(recipe, model),
        *_precision_warnings(recipe, program),
        *_offloading_warnings(recipe, setting.device),
        *_data_warnings(recipe, setting.data),
        *_scale_warnings(setting.data, model),
        *_size_warnings(recipe, setting.preprocess),
    ]


def _unused_marks(recipe: Recipe, model: nn.Module) -> list[str]:
    stages = marked_stages(model)
    if stages < 2 or recipe.stages is not None or stage_count(recipe) > 1:
        return []
    return [
        f"the modules of --model are marked for {stages} stages, but train in one piece; --stages {stages} "
        "uses the marks."
    ]


def _from_first(
    group: ReplicaGroup, measure: Callable[[], tuple[str, ...]], *, known: tuple[str, ...] | None
) -> tuple[str, ...]:
    own = (known or measure()) if group.is_first else None
    chosen: tuple[str, ...] = group.from_first(own)
    return chosen


def _norm_warnings(
    recipe: Recipe, model: nn.Module, *, plan: TrainingPlan, rehearsal: Rehearsal | None
) -> list[str]:
    """Warnings about norm options without effect, and about state that depends on the layout."""
    batch = plan.batch
    idle = idle_norm_options(recipe, model)
    if rehearsal is None or batch.replicas == batch.accumulation == 1:
        return idle
    by_samples = _own_values(model, [name for name, depends in rehearsal.moving.items() if depends])
    by_calls = _own_values(model, [name for name, depends in rehearsal.moving.items() if not depends])
    # A weight that every pass clamps alike is the same however often that happens.
    by_calls = [words for words in by_calls if batch.accumulation > 1 and not words.startswith("parameter")]
    return [*idle, *_moving_warnings(by_samples, plan=plan), *_moving_warnings(by_calls, plan=plan)]


def _own_values(model: nn.Module, names: Sequence[str]) -> list[str]:
    """Values that a user's modules change, as "buffer NAME"; without the statistics of torch's norms."""
    found = []
    for name in names:
        path, _, key = name.rpartition(".")
        module = model.get_submodule(path)
        if isinstance(module, _NormBase):
            continue
        kind = "parameter" if key in module._parameters else "attribute"
        kind = "buffer" if key in module._buffers else kind
        found.append(f"{kind} {name}")
    return found


def _moving_warnings(values: Sequence[str], *, plan: TrainingPlan) -> list[str]:
    if not values:
        return []
    more = f" and {len(values) - 1} more" if len(values) > 1 else ""
    apart = " of the first replica" if plan.batch.replicas > 1 else ""
    counts = {"--replicas": plan.batch.replicas, "--gradient-accumulation-count": plan.batch.accumulation}
    cuts = " and ".join(f"{option} {count}" for option, count in counts.items() if count > 1)
    return [
        f"--model updates its {values[0]}{more} itself, at every micro-batch{apart}, so "
        f"{'they depend' if more else 'it depends'} on {cuts}; statistics of torch's batch norms do not."
    ]


def _unowned_warnings(recipe: Recipe, program: TrainingProgram) -> list[str]:
    apart = ", and on each replica from its own samples only" if program.groups.replicas.size > 1 else ""
    options = norm_options(recipe)
    idle = (
        f"; {' and '.join(options)} {'have' if len(options) > 1 else 'has'} no effect on it"
        if options
        else ""
    )
    return [
        f"--model's norm {name} is not a batch norm of torch, so it updates its statistics at every "
        f"micro-batch{apart}{idle}."
        for name in program.batch_norms.unowned
    ]


def _draw_warnings(program: TrainingProgram) -> list[str]:
    failure = program.draws.facts.failure
    if not failure:
        return []
    return [
        "where --model draws random numbers could not be found out, because a copy of it failed on random "
        f"images ({failure}); its draws outside of dropout layers may depend on the layout."
    ]


def _compile_warnings(recipe: Recipe, program: TrainingProgram) -> list[str]:
    compiles = recipe.compile == "on" or any(option.get("compile") for option in recipe.stage_options)
    if not compiles or not program.draws.facts.needs_places:
        return []
    return [
        f"the model runs uncompiled in spite of --compile on: {DRAWS_OBSTACLE}; dropout layers of torch.nn "
        "and --recomputation can be compiled."
    ]


def _unstored_warnings(recipe: Recipe, model: nn.Module) -> list[str]:
    """A warning about state of a user's modules that no checkpoint holds."""
    places = unstored_places(model) if recipe.checkpoints else []
    if not places:
        return []
    more = f" and {len(places) - 1} more" if len(places) > 1 else ""
    return [
        f"--model changes its attribute {places[0].name}{more} in its forward pass, but a checkpoint stores "
        "only tensors and numbers of modules, so a continued run would not be the same; use a buffer instead "
        f"of a {type(places[0].value).__name__}."
    ]


def _precision_warnings(recipe: Recipe, program: TrainingProgram) -> list[str]:
    """Warnings about options for half precision that have no effect on this device."""
    is_half = program.precision.compute_dtype != torch.float32
    device = program.device
    warnings = []
    if recipe.half_partials and not (is_half and device.has_half_partials):
        why = f"a {device.torch_device.type} device" if is_half else "float32 computation"
        warnings.append(f"--half-partials True has no effect on {why}.")
    if recipe.half_type != default_values()["half_type"] and not is_half:
        warnings.append(
            f"--half-type {recipe.half_type} has no effect: --precision {recipe.precision} is float32 on "
            "this device; --precision 16.32 computes in 16 bits."
        )
    if recipe.precision_list is not None and not is_half:
        warnings.append(
            f"--precision-list has no effect: --precision {recipe.precision} is float32 on this device; "
            "--precision 16.32 computes in 16 bits."
        )
    return warnings


def _data_warnings(recipe: Recipe, data: DataSplits) -> list[str]:
    if not recipe.validation or data.validation is not None:
        return []
    idle = _idle_without_validation(recipe)
    options = options_to_hold_out(recipe, data.train)
    if options is None:
        return [
            "there are no validation samples, and none can be held out of a single training sample; "
            "--validation False trains without.",
            *idle,
        ]
    return [f"there are no validation samples; {options} holds some out.", *idle]


def _scale_warnings(data: DataSplits, model: nn.Module) -> list[str]:
    """A warning if columns of a table differ in scale, and the model does not begin with a batch norm."""
    first = next((layer for layer in model.modules() if not list(layer.children())), model)
    if data.spec.input_kind != "table" or isinstance(first, _NormBase):
        return []
    warning = scale_warning(data.train)
    return [] if warning is None else [warning]


def _idle_without_validation(recipe: Recipe) -> list[str]:
    given = Given(recipe, {})
    return [
        f"{given.option(field)} has no effect: there are no validation samples."
        for field in fields_of_validation()
        if given.is_asked(field) and field != "limit_validation_samples"
    ]


def _offloading_warnings(recipe: Recipe, device: Device) -> list[str]:
    asked = recipe.optimizer_state_offloading and recipe.optimise_for is None
    if not (asked and device.is_cpu):
        return []
    return ["--optimizer-state-offloading True has no effect on a CPU: the state is in host memory anyway."]


def _size_warnings(recipe: Recipe, preprocess: Preparation) -> list[str]:
    """A warning if unet_same pads images whose sides are not divisible by 2^depth."""
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


def _check_output(program: TrainingProgram, data: DataSplits, preprocess: Preparation) -> None:
    shape = (preprocess.channels, preprocess.height, preprocess.width)
    output = probe_output(program.model, program.forward, shape=shape, device=program.device)
    num_classes = data.spec.num_classes
    program.task.check_labels(data, output=output)
    program.task.check_output(output, batch=2, num_classes=num_classes, size=preprocess.label_size)


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
        groups=program.groups,
        forward=program.forward,
        counts=program.stages is None or program.stages.last in program.stages.own,
    )
