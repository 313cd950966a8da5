"""A run from its request to its result."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import nn

from drivetrain.assembly.training_parts import Assembly, assemble
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import RunFailedError
from drivetrain.core.progress import showing_progress
from drivetrain.data.bad_samples import refusing_bad_samples
from drivetrain.data.feeds.held_once import hold_once
from drivetrain.devices.backend_settings import training_backends
from drivetrain.devices.code_folder import using_code_folder
from drivetrain.devices.device import Device, choose_device
from drivetrain.inference.model.restore import measured_cut
from drivetrain.models.saved_state import require_plain_state
from drivetrain.ranks.collective_timeout import FIRST_VALIDATION_TIMEOUT_S, START_TIMEOUT_S
from drivetrain.ranks.rank_device import choose_rank_device
from drivetrain.ranks.rank_process import keep_log
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.ranks.threads import threads_of_rank
from drivetrain.recipe.schema import Recipe
from drivetrain.run.details import show_details
from drivetrain.run.events.loggers import check_loggers
from drivetrain.run.predict_after import predict_after_training
from drivetrain.run.request import Request
from drivetrain.run.share import RunPart, RunResult
from drivetrain.run.stopping import StopRequest, listen_for_stop
from drivetrain.store.directory import make_directory
from drivetrain.store.lock import hold_lock

__all__ = ["RunResult", "architecture_of", "set_up_device", "train_request"]


def train_request(
    request: Request,
    *,
    reporter: Reporter,
    model: nn.Module | None = None,
    stop: StopRequest | None = None,
    group: ReplicaGroup = ALONE,
    on_claimed: Callable[[], None] | None = None,
) -> RunResult:
    """Carries out a prepared request, as one of the replicas in `group`; `stop` is a caller's that listens
    for signals itself. `on_claimed` is called once the directory is this run's."""
    check_loggers(request.recipe)
    group.set_timeout(START_TIMEOUT_S if request.recipe.training else FIRST_VALIDATION_TIMEOUT_S)
    with set_up_device(request.recipe, group) as device:
        hold_once(request.data, group=group)
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
            )
        try:
            result = _run_locked(
                request, assembly=assembly, reporter=reporter, stop=stop, on_claimed=on_claimed
            )
        finally:
            assembly.program.feed.close()
        if group.is_first:
            result = predict_after_training(request.recipe, result, reporter=reporter, model=model)
        return result


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
        part = RunPart(request, assembly=assembly, reporter=reporter, stop=stop_request)
        show_details(
            request.resolved,
            model=assembly.program.model,
            preprocess=assembly.preprocess,
            reporter=reporter,
        )
        try:
            return part.carry_out([*request.warnings, *assembly.warnings])
        except OSError as error:
            raise RunFailedError(
                f"{error.filename or request.directory.path} could not be written: "
                f"{error.strerror or error}; the newest checkpoint stays, and the same command "
                "continues once that is mended."
            ) from error


@contextmanager
def _claimed(request: Request, group: ReplicaGroup) -> Iterator[None]:
    """The first replica holds the directory, and the others begin once it does."""
    if group.is_first:
        make_directory(request.directory)
        with hold_lock(request.directory.path):
            request.claim_directory()
            group.barrier()
            yield
    else:
        group.barrier()
        keep_log(request.directory.rank_log(group.rank))
        yield


def architecture_of(model: nn.Module | None) -> list[str] | None:
    """What makes a user's own module the same one again: names and shapes, not the initial values."""
    if model is None:
        return None
    require_plain_state(model)
    return [f"{name} {tuple(value.shape)}" for name, value in model.state_dict().items()]


@contextmanager
def set_up_device(recipe: Recipe, group: ReplicaGroup) -> Iterator[Device]:
    """The device of this rank for the time of the block, with the threads and algorithms of a training."""
    threads_before = torch.get_num_threads()
    threads = threads_of_rank(group, asked=recipe.num_threads)
    if threads is not None:
        torch.set_num_threads(threads)
    try:
        device = choose_rank_device(recipe.device, group) if group.size > 1 else choose_device(recipe.device)
        # The user's own model may compile itself.
        saves_memory = recipe.optimise_for == "memory"
        with training_backends(device, saves_memory=saves_memory), using_code_folder():
            yield device
    finally:
        torch.set_num_threads(threads_before)
