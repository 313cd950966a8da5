"""The start of a training: its first files, the lines it prints, and the warnings of a continued run."""

from collections.abc import Mapping

from drivetrain.assembly.training_parts import Assembly
from drivetrain.catalogue.metrics import direction, shown_metric
from drivetrain.console.reporter import Reporter
from drivetrain.core.files import write_atomically, write_json
from drivetrain.data.preprocess import Preparation
from drivetrain.data.source import DataSpec
from drivetrain.pipeline.cutting.stage_plan import StagePlan
from drivetrain.plan.training_plan import InputShape, plan_to_json
from drivetrain.recipe.fields import defaults_with
from drivetrain.recipe.layout import BatchArithmetic, stage_count
from drivetrain.recipe.load import recipe_to_yaml
from drivetrain.recipe.notes import Fact
from drivetrain.run.compiling.kept_choice import chosen_before
from drivetrain.run.environment import change_of_bits, environment_of
from drivetrain.run.kept_settings import stored_environment
from drivetrain.run.request import Request, fit_to_keep
from drivetrain.store.best import best_metric
from drivetrain.store.checkpoint import Checkpoint, drop_checkpoints_after
from drivetrain.store.data_files import write_files, write_own_data
from drivetrain.store.metrics_file import SHORTAGE_EVENT, damaged_events, read_metrics
from drivetrain.store.origins import write_origins
from drivetrain.store.stored_plan import REASONS_KEY, kept_reasons, plan_problem, stored_plan

__all__ = ["introduce", "shape_of_run", "warn_of_changes", "write_request"]

# Learning rates that depend on the total number of updates; the others only know the current update.
_LENGTH_BOUND_SCHEDULES = ("cosine", "polynomial", "exponential")


def warn_of_changes(
    request: Request, assembly: Assembly, checkpoint: Checkpoint | None, *, reporter: Reporter
) -> None:
    """Warns about everything that a continued run does differently from its earlier part."""
    directory, schedule = request.directory, request.recipe.lr_schedule
    for problem in (plan_problem(directory.plan), damaged_events(directory.metrics)):
        if problem is not None:
            reporter.warn(problem)
    if checkpoint is None:
        if any(entry["event"] != SHORTAGE_EVENT for entry in read_metrics(directory.metrics)):
            reporter.warn("there is no checkpoint to continue from, so training starts again at update 0.")
        return
    drop_checkpoints_after(directory.checkpoints, update=checkpoint.update)
    # Runs of earlier versions recorded less, and only in their checkpoints.
    started_with = stored_environment(directory) or checkpoint.manifest["environment"]
    changed = change_of_bits(started_with, environment_of(assembly.program, request.recipe))
    if changed is not None:
        reporter.warn(changed)
    total = request.plan.epochs.total_updates
    before = stored_plan(directory.plan).get("total_updates", total)
    if before != total and schedule in _LENGTH_BOUND_SCHEDULES:
        reporter.warn(
            f"the run was planned for {before} updates and now has {total}; the {schedule} schedule depends "
            "on the length of the training, so the learning rate jumps here."
        )


def write_request(request: Request, assembly: Assembly, *, warnings: list[str]) -> None:
    """Writes identity, plan, data, environment and recipe of a run.

    The recipe comes last: a directory counts as a run once it has one, so a kill before that leaves no
    half-described run.
    """
    directory = request.directory
    plan = plan_to_json(
        request.recipe,
        request.plan,
        shape=shape_of_run(request.data.spec, assembly.preprocess),
        totals=assembly.totals,
        warnings=warnings,
        outline=assembly.outline,
        block_factors=assembly.block_factors,
    )
    write_json(directory.identity, request.identity)
    compared = {} if assembly.compared is None else {"checked": assembly.compared}
    reasons = request.resolved.reasons or kept_reasons(directory.plan)
    chosen = {REASONS_KEY: dict(reasons)} if reasons else {}
    fitted = fit_to_keep(request)
    write_json(directory.plan, plan | compared | chosen_before(directory.plan) | chosen | fitted)
    write_json(directory.data, request.data.spec.to_json())
    write_files(directory, request.files)
    write_own_data(directory, request.own_data)
    write_json(directory.environment, environment_of(assembly.program, request.recipe))
    write_origins(directory.origins, request.resolved.origins)
    # Options of this call alone are not stored: with --overwrite, a continued run would erase itself.
    lasting = request.recipe.model_copy(update=defaults_with(Fact.ONE_CALL))
    if request.resolved.fingerprint is not None:
        write_json(directory.fingerprint, dict(request.resolved.fingerprint))
    write_atomically(directory.recipe, recipe_to_yaml(lasting, reasons=reasons).encode())


def shape_of_run(spec: DataSpec, preprocess: Preparation) -> InputShape:
    """The shape that the model of a run is built for, as a plan names it."""
    height, width = preprocess.picture_size
    return InputShape(
        channels=spec.channels,
        image_size=height if spec.input_kind == "image" else width,
        num_classes=spec.num_classes,
        input_kind=spec.input_kind,
        width=width if spec.input_kind == "image" and width != height else None,
    )


def introduce(
    request: Request, assembly: Assembly, checkpoint: Checkpoint | None, *, reporter: Reporter
) -> None:
    """Prints what will be trained, on which device and layout, and where the run directory is."""
    for line in (_samples_in_words(request), _device_in_words(assembly), *_layout_lines(request, assembly)):
        reporter.say(line)
    if assembly.evaluate is not None and request.recipe.checkpoints:
        reporter.say(f"{_how_best_is_chosen(request)}; --best-by METRIC selects another metric")
    reporter.say(f"run directory: {request.directory.path}")
    if checkpoint is not None:
        reporter.say(f"continuing after update {checkpoint.update} from {checkpoint.path}")


def _samples_in_words(request: Request) -> str:
    recipe, batch, epochs = request.recipe, request.plan.batch, request.plan.epochs
    spec = request.data.spec
    words = "" if spec.input_kind == "image" else f" ({spec.input_words})"
    return (
        f"{recipe.model} on {recipe.dataset}: {_samples(epochs.samples, 'training ')}{words} "
        f"in {_classes(spec.num_classes)}, "
        f"{epochs.total_updates} updates of {_samples(batch.global_batch)}{_batch_in_words(batch)}, "
        f"logging every {_log_interval_in_words(request.plan.events.log_updates, batch)}"
    )


def _device_in_words(assembly: Assembly) -> str:
    device = assembly.program.device
    return (
        f"device: {device.torch_device} ({device.description}; {device.reason}), "
        f"precision {assembly.program.precision.description}"
    )


def _layout_lines(request: Request, assembly: Assembly) -> list[str]:
    """How stages, batch norms and rates are distributed; empty for a whole model in one process."""
    recipe, program = request.recipe, assembly.program
    lines = []
    if program.stages is not None and stage_count(recipe) > 1:
        lines.append(_stages_in_words(program.stages.plan))
    if assembly.compared is not None:
        pieces = "stages" if stage_count(recipe) > 1 else "recomputed blocks"
        lines.append(f"{pieces} checked: {assembly.compared}")
    if assembly.block_factors:
        lines.append(_factors_in_words(assembly.block_factors))
    if recipe.replicas > 1 and program.batch_norms.batch_norms:
        together = request.plan.batch.micro * recipe.dbn_replica_group_size
        lines.append(
            f"batch norm normalises over {together} samples (micro-batch size x "
            f"--dbn-replica-group-size {recipe.dbn_replica_group_size}); a larger group spans more replicas"
        )
    return lines


def _factors_in_words(factors: Mapping[str, float]) -> str:
    names = list(factors)
    ends = [f"{factors[name]:.4g} x for {name}" for name in (names[0], names[-1])]
    return f"learning rate by block: from {ends[0]} to {ends[1]}"


def _how_best_is_chosen(request: Request) -> str:
    metric = best_metric(request.recipe, task=request.data.spec.task)
    return f"best checkpoint: chosen by validation {shown_metric(metric)} ({direction(metric)})"


def _stages_in_words(plan: StagePlan) -> str:
    firsts = ", ".join((plan.traced.layers[0].name, *plan.firsts))
    devices = f"{plan.devices} device{'s' if plan.devices > 1 else ''} per replica"
    other = "" if plan.other_cut is None else f"; the automatic split would be {plan.other_cut}"
    return (
        f"{plan.stages} pipeline stages on {devices}, schedule {plan.schedule_name}; "
        f"first layers of the stages: {firsts}{other}"
    )


def _samples(number: int, which: str = "") -> str:
    return f"{number} {which}sample{'' if number == 1 else 's'}"


def _classes(number: int) -> str:
    return "1 class" if number == 1 else f"{number} classes"


def _batch_in_words(batch: BatchArithmetic) -> str:
    """How the micro-batches of one update add up to the global batch; empty if there is only one."""
    if batch.replicas == batch.accumulation == 1:
        return ""
    replicas = f"{batch.replicas} replica{'s' if batch.replicas > 1 else ''}"
    micro_batches = f"{batch.accumulation} micro-batch{'es' if batch.accumulation > 1 else ''}"
    return f" ({replicas} x {micro_batches} x {_samples(batch.micro)})"


def _log_interval_in_words(updates: int, batch: BatchArithmetic) -> str:
    interval = f"{updates} update{'s' if updates > 1 else ''}"
    if batch.accumulation == 1:
        return interval
    return f"{interval} ({updates * batch.accumulation} micro-batches)"
