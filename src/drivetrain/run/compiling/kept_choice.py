"""Keeps the choice whether to compile in plan.json, so that a continued run computes the same bits."""

from pathlib import Path
from typing import Any

from drivetrain.assembly.training_parts import Assembly
from drivetrain.console.reporter import Reporter
from drivetrain.core.files import write_json
from drivetrain.run.compiling.compile_choice import CompileChoice, choose_compile
from drivetrain.run.request import Request, TrainingSeries
from drivetrain.run.stopping import StopRequest, TimeLimit
from drivetrain.store.stored_plan import COMPILE_KEY, VALIDATION_KEY, stored_plan

__all__ = ["choose_and_keep", "chosen_before"]


def chosen_before(plan: Path) -> dict[str, Any]:
    """The choices an earlier part of the run stored in its plan, to be copied into the new plan."""
    before = stored_plan(plan)
    return {key: before[key] for key in (COMPILE_KEY, VALIDATION_KEY) if key in before}


def choose_and_keep(
    request: Request,
    assembly: Assembly,
    *,
    first: int,
    stop: StopRequest,
    limit: TimeLimit | None,
    reporter: Reporter,
) -> CompileChoice | None:
    """Chooses for the updates from `first` on, prints the choice and writes it into the plan.

    None if the run was stopped, or --max-time ran out, while measuring: the next part of the run chooses.
    """
    recipe, path, preprocess = request.recipe, request.directory.plan, assembly.preprocess
    before = chosen_before(path).get(COMPILE_KEY)
    # All folds of a cross-validation must choose alike, however little time is left for the last one.
    series = request.series or TrainingSeries(trainings=1, max_time_s=None if limit is None else limit.left_s)
    choice = choose_compile(
        recipe,
        assembly.program,
        first=first,
        total=request.plan.epochs.total_updates,
        trainings=series.trainings,
        image_shape=(preprocess.channels, preprocess.height, preprocess.width),
        stored=before,
        max_time_s=series.max_time_s,
        goes_on=lambda: not stop.made and (limit is None or not limit.is_up()),
        reporter=reporter,
    )
    if choice is None:
        return None
    # What stands in the way now, such as --fp-exceptions, must not hold for later parts of the run.
    if before is None or choice.is_chosen:
        write_json(path, stored_plan(path) | {COMPILE_KEY: choice.to_json()})
    if recipe.compile == "auto":
        reporter.say(choice.sentence)
    return choice
