"""Training in one process: from a checked request to its result, including --predict-after."""

import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import nn

from drivetrain.assembly.training_parts import Assembly, assemble
from drivetrain.console.reporter import Reporter
from drivetrain.console.tables import text_table
from drivetrain.core.errors import RunFailedError
from drivetrain.core.progress import showing_progress
from drivetrain.data.bad_samples import refusing_bad_samples
from drivetrain.data.feeds.held_once import hold_once
from drivetrain.data.preprocess import Preparation
from drivetrain.devices.backend_settings import training_backends
from drivetrain.devices.blas_workspace import fixed_workspace
from drivetrain.devices.code_folder import using_code_folder
from drivetrain.devices.device import Device, choose_device
from drivetrain.inference.model.restore import measured_cut
from drivetrain.inference.predict.inputs import InputNotes, expand_inputs
from drivetrain.inference.predict.predict import predict_run
from drivetrain.models.parameter_hooks import copy_model
from drivetrain.models.requirements import require_plain_state
from drivetrain.models.summary import LayerRow, describe_layers
from drivetrain.ranks.collective_timeout import FIRST_UPDATE_TIMEOUT_S, FIRST_VALIDATION_TIMEOUT_S
from drivetrain.ranks.rank_device import choose_rank_device
from drivetrain.ranks.rank_process import keep_log
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.ranks.threads import threads_of_rank
from drivetrain.recipe.fields import default_values, option_name, plain_values, written_value
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import Recipe
from drivetrain.run.reporting.loggers import check_loggers, rank_logs
from drivetrain.run.request import Request
from drivetrain.run.session import RunResult, RunSession
from drivetrain.run.shortage.outcome import MemoryRanOutError
from drivetrain.run.stopping import StopRequest, listen_for_stop
from drivetrain.store.directory import make_directory
from drivetrain.store.heartbeat import clear_heartbeats
from drivetrain.store.lock import hold_lock

__all__ = [
    "RunResult",
    "architecture_of",
    "layer_lines",
    "predict_after_training",
    "recipe_lines",
    "set_up_device",
    "show_details",
    "train_request",
]


def show_details(
    resolved: ResolvedRecipe, *, model: nn.Module, preprocess: Preparation, reporter: Reporter
) -> None:
    """Prints changed options with their origin and a table of layers, with --verbosity verbose only."""
    if not reporter.is_verbose:
        return
    for line in [*recipe_lines(resolved), *layer_lines(model, preprocess)]:
        reporter.detail(line)


def recipe_lines(resolved: ResolvedRecipe) -> list[str]:
    """The options that differ from their defaults, each with its origin."""
    return [
        f"{option_name(name)} {written_value(value)}  ({resolved.origins.get(name, 'derived')})"
        for name, value in plain_values(resolved.recipe).items()
        if value != default_values()[name]
    ]


def layer_lines(model: nn.Module, preprocess: Preparation) -> list[str]:
    """The layers of the model in execution order, as a table."""
    size = {"image_size": preprocess.height, "width": preprocess.width}
    rows = describe_layers(model, channels=preprocess.channels, **size)
    cells = [("layer", "kind", "output", "parameters", "FLOPs"), *map(_cells, rows)]
    return text_table(cells)


def _cells(row: LayerRow) -> tuple[str, ...]:
    shape = " x ".join(map(str, row.output_shape))
    return (row.name, row.kind, shape, str(row.parameters), str(row.flops))


def predict_after_training(
    recipe: Recipe, result: RunResult, *, reporter: Reporter, model: nn.Module | None
) -> RunResult:
    """--predict-after: predicts the named files with the newest checkpoint, into the run's predictions/.

    If files had to be left out, the result gets the same exit status as `predict` would.
    """
    if not recipe.predict_after or result.status != "finished":
        return result
    notes = InputNotes()
    output = result.directory / "predictions"
    rows = predict_run(
        result.directory,
        expand_inputs(recipe.predict_after),
        output=output,
        reporter=reporter,
        device=recipe.device,
        model=model,
        notes=notes,
    )
    reporter.say(f"predictions of {len(rows)} images written to {output}")
    return replace(result, exit_status=RunFailedError.exit_status) if notes.left_out else result


def train_request(
    request: Request,
    *,
    reporter: Reporter,
    model: nn.Module | None = None,
    stop: StopRequest | None = None,
    group: ReplicaGroup = ALONE,
    on_claimed: Callable[[], None] | None = None,
) -> RunResult:
    """Runs a prepared request as one rank of `group`.

    `stop` is given by a caller that handles signals itself. `on_claimed` is called once this run has locked
    its directory.
    """
    check_loggers(request.recipe)
    _allow_for_start(request, group)
    with set_up_device(request.recipe, group) as device:
        hold_once(request.data, group=group)
        # A model given in Python is changed by its training; after a failed attempt the next one needs it.
        spare = None if model is None else copy_model(model)
        trained, attempt = model, _Attempt(request, group)
        while True:
            outcome = _attempt(
                attempt,
                device=device,
                reporter=reporter,
                model=trained,
                stop=stop,
                on_claimed=on_claimed,
            )
            if isinstance(outcome, RunResult):
                break
            attempt, trained = outcome, None if spare is None else copy_model(spare)
            # Frames of the failed attempt, graphs and buffers refer to each other.
            gc.collect()
            device.forget_peak_memory()
            _allow_for_start(attempt.request, attempt.group)
        if attempt.group.is_first:
            outcome = predict_after_training(request.recipe, outcome, reporter=reporter, model=model)
        return outcome


@dataclass(frozen=True, slots=True)
class _Attempt:
    """One attempt at a training; the next one has a smaller micro-batch, and a new process group."""

    request: Request
    group: ReplicaGroup


def _attempt(
    attempt: _Attempt,
    *,
    device: Device,
    reporter: Reporter,
    model: nn.Module | None,
    stop: StopRequest | None,
    on_claimed: Callable[[], None] | None,
) -> RunResult | _Attempt:
    """Builds a program and runs it to its end; if memory ran out, returns what to attempt next."""
    request, group = attempt.request, attempt.group
    with reporter.showing("building the model"), showing_progress(reporter), refusing_bad_samples():
        assembly = assemble(
            request.recipe,
            data=request.data,
            model=model,
            plan=request.plan,
            device=device,
            group=group,
            continues=request.has_weights,
            measured_cut=measured_cut(request.directory, request.recipe) if request.goes_on else None,
            compares_cut=request.recipe.training,
        )
    try:
        return _run_locked(request, assembly=assembly, reporter=reporter, stop=stop, on_claimed=on_claimed)
    except MemoryRanOutError as shortage:
        return _Attempt(shortage.request, shortage.group)
    finally:
        assembly.program.feed.close()


def _allow_for_start(request: Request, group: ReplicaGroup) -> None:
    group.set_timeout(FIRST_UPDATE_TIMEOUT_S if request.recipe.training else FIRST_VALIDATION_TIMEOUT_S)


def _run_locked(
    request: Request,
    *,
    assembly: Assembly,
    reporter: Reporter,
    stop: StopRequest | None,
    on_claimed: Callable[[], None] | None,
) -> RunResult:
    listening = listen_for_stop() if stop is None else nullcontext(stop)
    with _claimed(request, assembly.program.group), listening as stop_request:
        if on_claimed is not None and assembly.program.group.is_first:
            on_claimed()
        session = RunSession(request, assembly=assembly, reporter=reporter, stop=stop_request)
        show_details(
            request.resolved,
            model=assembly.program.model,
            preprocess=assembly.preprocess,
            reporter=reporter,
        )
        try:
            with showing_progress(reporter):
                return session.carry_out([*request.warnings, *assembly.warnings])
        except OSError as error:
            raise RunFailedError(
                f"{error.filename or request.directory.path} could not be written: "
                f"{error.strerror or error}; the newest checkpoint is intact, and the same command "
                "continues once this is fixed."
            ) from error


@contextmanager
def _claimed(request: Request, group: ReplicaGroup) -> Iterator[None]:
    """Rank 0 locks and prepares the run directory; the other ranks wait for it."""
    if group.is_first:
        make_directory(request.directory)
        with hold_lock(request.directory.path):
            # Before the barrier: the other ranks then write their logs into the directory.
            request.claim_directory()
            clear_heartbeats(request.directory.path)
            group.barrier()
            yield
    else:
        group.barrier()
        keep_log(rank_logs(request.recipe, request.directory, group.rank)[0])
        yield


def architecture_of(model: nn.Module | None) -> list[str] | None:
    """Names and shapes of a user's own module, by which a continued run recognises it; not its values."""
    if model is None:
        return None
    require_plain_state(model)
    return [f"{name} {tuple(value.shape)}" for name, value in model.state_dict().items()]


@contextmanager
def set_up_device(recipe: Recipe, group: ReplicaGroup) -> Iterator[Device]:
    """Chooses the device of this rank and sets threads and backend options for the block."""
    threads_before = torch.get_num_threads()
    threads = threads_of_rank(group, asked=recipe.num_threads)
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        with fixed_workspace(is_on=recipe.deterministic):
            device = (
                choose_rank_device(recipe.device, group) if group.size > 1 else choose_device(recipe.device)
            )
            backends = training_backends(
                device,
                saves_memory=recipe.optimise_for == "memory",
                is_deterministic=recipe.deterministic,
            )
            # Even with --compile off: a user's own model may call torch.compile itself.
            with backends, using_code_folder():
                yield device
    finally:
        torch.set_num_threads(threads_before)
