"""The settings of each stage: recomputation, precision, compilation, offloading."""

from collections.abc import Sequence
from dataclasses import dataclass

from drivetrain.recipe.schema import Recipe

__all__ = ["StageSettings", "has_own_precisions", "stage_settings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSettings:
    """How one stage runs; `precision` as `--precision` writes it."""

    recomputes: bool
    precision: str
    compiles: bool
    offloads: bool


def stage_settings(recipe: Recipe, *, live: Sequence[int]) -> tuple[StageSettings, ...]:
    """The settings of all stages; `live` is the number of live micro-batches of each.

    `--optimise-for balanced` recomputes stages with more than one live micro-batch: with one it saves
    nothing.
    """
    options = {option["stage"]: option for option in recipe.stage_options}
    balanced = recipe.optimise_for == "balanced" and not recipe.recomputation
    return tuple(
        StageSettings(
            recomputes=option.get("recomputation", recipe.recomputation or (balanced and held > 1)),
            precision=option.get("precision", recipe.precision),
            compiles=option.get("compile", recipe.compile == "on"),
            offloads=option.get("offload", recipe.optimizer_state_offloading),
        )
        for held, option in ((held, options.get(stage, {})) for stage, held in enumerate(live))
    )


def has_own_precisions(recipe: Recipe) -> bool:
    """Whether single stages compute in another precision than the rest."""
    return any("precision" in option for option in recipe.stage_options)
