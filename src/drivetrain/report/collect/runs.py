"""What a page shows of one run directory."""

from drivetrain.report.collect.budget import PictureBudget, not_shown
from drivetrain.report.collect.command import reproducing_command
from drivetrain.report.collect.confusion import confusion_of
from drivetrain.report.collect.curves import curves_of
from drivetrain.report.collect.environment import environment_facts
from drivetrain.report.collect.examples import Pictures, pictures_of
from drivetrain.report.collect.identifiers import id_of, name_of
from drivetrain.report.collect.plan_tables import memory_of, plan_tables
from drivetrain.report.collect.recipe_values import recipe_values
from drivetrain.report.collect.results import facts_of, headline_of, messages_of, score_tables, time_of
from drivetrain.report.collect.stored_run import StoredRun
from drivetrain.report.collect.timelines import timelines_of
from drivetrain.report.contents import RunContents
from drivetrain.store.stored_plan import REASONS_KEY

__all__ = ["training_contents"]


def training_contents(run: StoredRun, *, max_points: int | None, budget: PictureBudget) -> RunContents:
    """One run, whatever state it is in; parts whose files are missing are absent."""
    path = run.directory.path
    contents = RunContents(
        id=id_of(path),
        name=name_of(path),
        kind="training",
        state=run.state,
        task=str(run.data.get("task", "")),
        headline=run.part("The result", headline_of) or [],
        facts=run.part("The facts", facts_of) or [],
        command=run.part("The command", lambda run: reproducing_command(run.recipe)) or "",
        curves=run.part("The curves", lambda run: curves_of(run, max_points=max_points)) or [],
        recipe=run.part(
            "The recipe",
            lambda run: recipe_values(run.recipe, origins=run.origins, reasons=run.plan.get(REASONS_KEY, {})),
        )
        or [],
        plan=run.part("The plan", plan_tables) or [],
        tables=run.part("Tables of scores", score_tables) or [],
        environment=run.part("The environment", environment_facts) or [],
        warnings=[],
    )
    _add_optional_parts(contents, run, budget)
    messages = run.part("Warnings", messages_of) or []
    contents["warnings"] = [*messages, *not_shown(budget, alone="this run alone"), *run.problems]
    return contents


def _add_optional_parts(contents: RunContents, run: StoredRun, budget: PictureBudget) -> None:
    """Adds the parts that only some runs have."""
    if time := run.part("Where the time went", time_of):
        contents["time"] = time
    if memory := run.part("The memory", memory_of):
        contents["memory"] = memory
    if timelines := run.part("The timeline", timelines_of):
        contents["timeline"] = timelines
    pictures = run.part("The pictures", lambda run: pictures_of(run, budget=budget)) or Pictures()
    if pictures.masks:
        contents["masks"] = pictures.masks
    if pictures.worst:
        contents["worst"] = pictures.worst
    cells = pictures.cells
    if confusion := run.part("The confusion matrix", lambda run: confusion_of(run, cells=cells)):
        contents["confusion"] = confusion
