"""Builds the optimiser of a recipe."""

from collections.abc import Mapping, Sequence
from functools import partial

from torch import Tensor

from drivetrain.core.randomness import stream_key
from drivetrain.models.half_weights import is_half
from drivetrain.optim.flat_parameters import Segment
from drivetrain.optim.part_rates import PartedOptimiser, PartRate
from drivetrain.optim.rounded import RoundedOptimiser
from drivetrain.optim.rules import Adam, BuildOptimiser, Lars, Optimiser, RmsProp, Sgd
from drivetrain.recipe.schema import Recipe

__all__ = ["BuildOptimiser", "Optimiser", "build_optimiser"]


def build_optimiser(
    recipe: Recipe,
    *,
    values: Tensor,
    segments: Sequence[Segment],
    skips: Tensor | None = None,
    rates: Mapping[str, PartRate] | None = None,
) -> Optimiser:
    """The optimiser of a recipe, for flat weights `values` that consist of `segments`.

    If the flag `skips` on the device is set, a step changes nothing. `rates` are those of parameters with a
    learning rate of their own.
    """
    plain: BuildOptimiser = partial(_plain_optimiser, recipe)
    if rates:
        plain = partial(PartedOptimiser, plain, rates=rates)
    if not segments or (not is_half(values.dtype) and skips is None):
        return plain(values=values, segments=segments)
    key = stream_key(recipe.seed, "stochastic rounding") if recipe.stochastic_rounding else None
    return RoundedOptimiser(plain, values=values, segments=segments, key=key, skips=skips)


def _plain_optimiser(recipe: Recipe, *, values: Tensor, segments: Sequence[Segment]) -> Optimiser:
    params = recipe.optimizer_params
    if recipe.optimizer == "sgd":
        return Sgd(
            values,
            momentum=params.momentum or 0.0,
            nesterov=bool(params.nesterov),
            weight_decay=recipe.weight_decay,
        )
    if recipe.optimizer == "rmsprop":
        return RmsProp(
            values,
            rho=0.9 if params.rho is None else params.rho,
            momentum=params.momentum or 0.0,
            epsilon=1e-7 if params.epsilon is None else params.epsilon,
            centered=bool(params.centered),
            weight_decay=recipe.weight_decay,
        )
    if recipe.optimizer == "lars":
        return Lars(
            values,
            segments=segments,
            momentum=params.momentum or 0.0,
            weight_decay=params.weight_decay or 0.0,
            eeta=params.eeta or 0.0,
            epsilon=params.epsilon or 0.0,
        )
    return Adam(
        values,
        beta1=0.9 if params.beta1 is None else params.beta1,
        beta2=0.999 if params.beta2 is None else params.beta2,
        epsilon=1e-8 if params.epsilon is None else params.epsilon,
        bare_epsilon=bool(params.bare_epsilon),
        weight_decay=recipe.weight_decay,
    )
