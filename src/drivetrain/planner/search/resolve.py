"""From a recipe to the one with the layout that the search chose."""

from dataclasses import replace

from drivetrain.core.errors import BadInputError
from drivetrain.plan.precision import is_cpu
from drivetrain.planner.search.asked import AskedSearch
from drivetrain.planner.search.from_recipe import problem_from_recipe
from drivetrain.planner.search.options import option_line, resets
from drivetrain.planner.search.result import SearchResult, search_layouts
from drivetrain.planner.search.subject import subject_of
from drivetrain.ranks.threads import cores
from drivetrain.recipe.checks.all_rules import check_recipe
from drivetrain.recipe.layout import stage_count
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.messages import COMMAND_LINE, RULES
from drivetrain.recipe.params import PipelineScheduleName
from drivetrain.recipe.schema import Recipe

__all__ = ["search_recipe"]


def search_recipe(resolved: ResolvedRecipe, asked: AskedSearch) -> tuple[SearchResult, ResolvedRecipe]:
    """Searches a layout for a recipe; the recipe that comes back has it as ordinary options."""
    recipe = resolved.recipe
    devices = asked.devices or _devices_here(recipe)
    replicas = None if asked.replicas else recipe.replicas
    if replicas is not None and replicas > devices:
        raise BadInputError(
            f"--replicas {replicas} needs more than the {devices} devices of this search; --devices "
            f"{replicas} works."
        )
    subject = subject_of(resolved)
    problem = problem_from_recipe(
        subject,
        devices=devices,
        memory_limit=asked.memory_limit,
        stages=None if asked.stages else stage_count(recipe),
        replicas=replicas,
        schedule=asked.schedule or _typed_schedule(resolved),
        # Without --devices, the processes of a CPU share the cores that one process has to itself.
        shares_cores=asked.devices is None and is_cpu(recipe.device),
    )
    result = search_layouts(subject, problem)
    return result, _with_layout(resolved, result)


def _typed_schedule(resolved: ResolvedRecipe) -> PipelineScheduleName | None:
    is_typed = resolved.origins["pipeline_schedule"] == COMMAND_LINE
    return resolved.recipe.pipeline_schedule if is_typed else None


def _devices_here(recipe: Recipe) -> int:
    """The accelerators of this machine; on a CPU at most one process per core."""
    if is_cpu(recipe.device):
        return cores()
    import torch

    return torch.accelerator.device_count()


def _with_layout(resolved: ResolvedRecipe, result: SearchResult) -> ResolvedRecipe:
    fields = dict(result.rows[0].fields)
    changed = resets() | fields
    recipe = resolved.recipe.model_copy(update=changed)
    origins = resolved.origins | dict.fromkeys(changed, RULES)
    note = f"layout chosen by the search: {option_line(fields)}"
    return replace(
        resolved,
        recipe=recipe,
        origins=origins,
        warnings=tuple(check_recipe(recipe, origins)),
        notes=(*resolved.notes, note),
    )
