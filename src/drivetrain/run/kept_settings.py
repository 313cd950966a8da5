"""What a continued run keeps so that its bits stay: the threads of each rank, and whether it is compiled.

Both follow from the layout of the first start unless they are given. A run that continues on another layout
must not choose them again.
"""

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from drivetrain.core.files import read_json
from drivetrain.devices.processor import read_processor
from drivetrain.ranks.find_place import OWN_LAUNCHER, find_place
from drivetrain.ranks.threads import cores
from drivetrain.recipe.layout import rank_count, stage_count
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.recipe.schema import Recipe
from drivetrain.store.directory import RunDirectory
from drivetrain.store.stored_plan import COMPILE_KEY, stored_plan

__all__ = ["keep_settings", "stored_environment"]


def stored_environment(directory: RunDirectory) -> dict[str, Any]:
    """What the run was last started with; empty if that is missing or damaged."""
    try:
        return read_json(directory.environment)
    except (OSError, ValueError):
        return {}


def keep_settings(resolved: ResolvedRecipe, directory: RunDirectory) -> ResolvedRecipe:
    """The recipe with the threads and the compile choice of the run that it continues.

    Only the host of rank 0 need have the directory, so ranks of another launcher keep nothing.
    """
    recipe = resolved.recipe
    if OWN_LAUNCHER not in os.environ and find_place(os.environ) is not None:
        return resolved
    threads, of_threads = _threads(recipe, stored_environment(directory))
    compiles, of_compiling = _compiling(recipe, stored_plan(directory.plan).get(COMPILE_KEY) or {})
    if not (threads or compiles or of_threads or of_compiling):
        return resolved
    return replace(
        resolved,
        recipe=recipe.model_copy(update={**threads, **compiles}),
        # Ranks get the request of the launching process, which has been here before.
        warnings=tuple(dict.fromkeys((*resolved.warnings, *of_threads, *of_compiling))),
    )


_Kept = tuple[dict[str, Any], list[str]]
"""The fields to change, and sentences about them."""


def _threads(recipe: Recipe, environment: Mapping[str, Any]) -> _Kept:
    """On a CPU, kernels divide sums among the threads; `change_of_bits` reports another typed number."""
    kept = environment.get("threads")
    if not isinstance(kept, int) or environment.get("device_type") != "cpu" or recipe.num_threads is not None:
        return {}, []
    # On another processor the bits differ anyway.
    processor = read_processor().name
    if environment.get("processor", processor) != processor:
        return {}, []
    ranks, own = rank_count(recipe), cores()
    if kept == 1 or ranks * kept <= own:
        return {"num_threads": kept}, []
    who = f"each of the {ranks} ranks" if ranks > 1 else "training"
    sentence = (
        f"{who} uses {kept} threads, as when the run started, because its bits depend on "
        f"them; this machine has {own} cores, so --num-threads {max(1, own // ranks)} is faster and gives "
        "other bits."
    )
    return {"num_threads": kept}, [sentence]


def _compiling(recipe: Recipe, chosen: Mapping[str, Any]) -> _Kept:
    was_on = chosen.get("on")
    if not isinstance(was_on, bool):
        return {}, []
    is_whole = rank_count(recipe) == 1 and stage_count(recipe) == 1 and not recipe.recomputation
    if recipe.compile == "auto" and was_on and recipe.fp_exceptions:
        return {}, [_uncompiled("--fp-exceptions True", keeps="--fp-exceptions False")]
    if recipe.compile == "auto":
        # A whole model in one process keeps the choice when it is made (run/compiling).
        return _pieces(recipe, was_on=was_on and not is_whole)
    if (recipe.compile == "on") == was_on:
        return {}, []
    words = {True: "compiled", False: "uncompiled"}
    sentence = (
        f"--compile {recipe.compile}: the run was {words[was_on]} so far and goes on {words[not was_on]}; "
        "its results stay equal within rounding, but their bits are not those of one whole run."
    )
    return {}, [sentence]


def _pieces(recipe: Recipe, *, was_on: bool) -> _Kept:
    """A run that was compiled goes on compiled, although `auto` compiles no ranks, stages or blocks."""
    if not was_on:
        return {}, []
    if recipe.pipeline_schedule == "zero-bubble" and stage_count(recipe) > 1:
        keeps = "--pipeline-schedule 1f1b"
        return {}, [_uncompiled("--pipeline-schedule zero-bubble", keeps=keeps)]
    return {"compile": "on"}, []


def _uncompiled(option: str, *, keeps: str) -> str:
    return (
        f"the run was compiled so far, which {option} does not allow; its bits are not those of one whole "
        f"run, {keeps} keeps them."
    )
