"""From a recipe to the one with the layout that the search chose."""

from dataclasses import replace
from typing import Any

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.plan.precision import is_cpu
from drivetrain.plan.stage_report import LIBRARIES_BYTES, memory_of_run
from drivetrain.plan.training_plan import PlannedRun
from drivetrain.planner.costs import ModelTimes
from drivetrain.planner.device_memory import WORKSPACE_BYTES, device_memories
from drivetrain.planner.devices.described_device import DescribedDevice
from drivetrain.planner.devices.links import find_links
from drivetrain.planner.devices.target import Target, find_target
from drivetrain.planner.estimate import Measure, for_device
from drivetrain.planner.measuring.worth_measuring import why_not_measured
from drivetrain.planner.model_times import model_times
from drivetrain.planner.search.asked import AskedSearch
from drivetrain.planner.search.from_recipe import problem_from_recipe
from drivetrain.planner.search.judge import PlanJudge
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


def search_recipe(
    resolved: ResolvedRecipe,
    asked: AskedSearch,
    *,
    described: DescribedDevice | None = None,
    measure: Measure = "auto",
    reporter: Reporter,
) -> tuple[SearchResult, ResolvedRecipe]:
    """Searches a layout for a recipe; the recipe that comes back has it as ordinary options.

    Times of layers are those of a `described` device, or measured on this machine. Where neither can be, they
    are in proportion to FLOPs.
    """
    resolved = for_device(resolved, described)
    recipe = resolved.recipe
    if recipe.deterministic and described is None and measure != "off":
        raise BadInputError(
            "--deterministic lets no measured time decide, but a search for the layout times its layers; "
            "name the layout, such as --stages 2, or find one with `drivetrain plan --search --measure off`."
        )
    devices = asked.devices or _devices_here(recipe, described)
    _require_described(devices, described)
    replicas = None if asked.replicas else recipe.replicas
    needed = (replicas or 1) * (1 if asked.stages else stage_count(recipe))
    if needed > devices:
        raise BadInputError(
            f"--replicas {replicas or 1} with {needed // (replicas or 1)} stages each needs more than the "
            f"{devices} devices of this search; --devices {needed} works."
        )
    subject = subject_of(resolved)
    target = find_target(subject.recipe, described=described, memory_limit_bytes=asked.memory_limit)
    with reporter.showing("timing layers"):
        times, notes = _times(subject.planned, target, measure=measure, reporter=reporter)
    known = _known_links(target, devices=devices) if times is not None else {}
    problem = problem_from_recipe(
        subject,
        devices=devices,
        times=times,
        memory_limit=_limit(target, asked),
        usable_share=target.usable_share,
        overhead_bytes=_overhead(subject.planned, target),
        stages=None if asked.stages else stage_count(recipe),
        replicas=replicas,
        schedule=asked.schedule or _typed_schedule(resolved),
        # Without --devices, the processes of a CPU share the cores that one process has to itself.
        shares_cores=asked.devices is None and is_cpu(recipe.device) and described is None,
        timed_share=_timed_share(recipe, is_measured=times is not None),
        typed=_typed(resolved),
        **known,
    )
    own_cores = asked.devices is not None and described is None and is_cpu(recipe.device)
    if own_cores and times is not None and devices > cores():
        notes += (f"--devices {devices}: the rows assume that no two processes share a core.",)
    judge = PlanJudge(
        subject=subject,
        described=described,
        memory_limit=asked.memory_limit,
        measure="off" if times is None else measure,
        own_cores=own_cores,
        reporter=reporter,
    )
    with reporter.showing("searching a layout"):
        result = replace(search_layouts(subject, problem, judge=judge), notes=notes)
    return result, _with_layout(resolved, result)


def _typed_schedule(resolved: ResolvedRecipe) -> PipelineScheduleName | None:
    is_typed = resolved.origins["pipeline_schedule"] == COMMAND_LINE
    return resolved.recipe.pipeline_schedule if is_typed else None


def _times(
    planned: PlannedRun, target: Target, *, measure: Measure, reporter: Reporter
) -> tuple[ModelTimes | None, tuple[str, ...]]:
    """Measured or described times of layers; none where they follow from FLOPs, and why if that failed."""
    resolved = planned.resolved
    if target.described is not None:
        return model_times(resolved, target=target, reporter=reporter), ()
    if measure == "off" or not target.can_measure:
        return None, ()
    if measure == "auto" and why_not_measured(planned, target=target, fits=None) is not None:
        return None, ()
    try:
        return model_times(resolved, target=target, reporter=reporter), ()
    # The whole model on one device may not fit it, or an operation be missing there.
    except Exception as error:
        is_refused = isinstance(error, BadInputError)
        if measure == "on" and is_refused:
            raise
        why = str(error) if is_refused else describe_failure(error)
        note = f"The layers could not be measured, so their times follow from operations: {why}"
        return None, (note,)


def _known_links(target: Target, *, devices: int) -> dict[str, Any]:
    """The links of the devices, and the connection to their host where a file describes it."""
    described = target.described
    host = {} if described is None else {"host_bytes_per_s": described.host_bytes_per_s}
    return {"links": find_links(target, ranks=devices), **host}


def _typed(resolved: ResolvedRecipe) -> frozenset[str]:
    return frozenset(name for name, origin in resolved.origins.items() if origin == COMMAND_LINE)


def _timed_share(recipe: Recipe, *, is_measured: bool) -> float:
    """The share of a CPU's cores for which times are known: two processes' threads if they are measured.

    See `planner/model_times.py`.
    """
    if not is_measured:
        return 1.0
    return (recipe.num_threads or max(1, cores() // 2)) / cores()


def _overhead(planned: PlannedRun, target: Target) -> int:
    """What libraries and resident data take on a device, whatever its stages are."""
    memory = memory_of_run(planned.outline, finds_savings=False).prediction
    if memory is None:
        return LIBRARIES_BYTES if target.is_cpu else WORKSPACE_BYTES
    parts = device_memories(planned, memory, target=target)[0].parts
    # One workspace is only for captured updates, which several ranks have not.
    workspaces = min(parts.get("workspaces", 0), 2 * WORKSPACE_BYTES)
    return workspaces + sum(parts.get(name, 0) for name in ("data", "libraries"))


def _limit(target: Target, asked: AskedSearch) -> int | None:
    """What was asked, or what the accelerator has; the memory of a host limits nothing unless asked."""
    return target.usable_bytes if target.is_limited or not target.is_cpu else asked.memory_limit


def _require_described(devices: int, described: DescribedDevice | None) -> None:
    """Refuses more devices than the hosts of a device file have."""
    there = None if described is None else described.devices
    if there is not None and devices > there:
        raise BadInputError(
            f"--devices {devices} is more than the {there} that --device-file describes; --devices {there} "
            "works."
        )


def _devices_here(recipe: Recipe, described: DescribedDevice | None) -> int:
    """The described devices, or the accelerators of this machine; on a CPU at most one process per core."""
    if described is not None:
        return described.devices or described.devices_per_host
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
        notes=(*resolved.notes, note, *result.notes),
    )
