"""The rules for precision: 16-bit weights, loss scaling, --precision-list and --fp-exceptions."""

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.given import Given
from drivetrain.recipe.params import LARGEST_LOSS_SCALE

__all__ = ["check_precision"]

_HALF_WEIGHTS = "16.16"


def check_precision(given: Given) -> None:
    """Checks the precision options against each other, against single stages and against --compile."""
    _check_scale(given)
    _check_rounding(given)
    _check_list(given)
    _check_stages(given)
    _check_exceptions(given)


def _check_scale(given: Given) -> None:
    scale = given.recipe.loss_scaling
    if not isinstance(scale, str) and scale > LARGEST_LOSS_SCALE:
        raise BadInputError(
            f"{given.option('loss_scaling')} must be at most {LARGEST_LOSS_SCALE}; "
            "--loss-scaling 32768 works."
        )


def _check_rounding(given: Given) -> None:
    if not given.recipe.stochastic_rounding or given.recipe.precision == _HALF_WEIGHTS:
        return
    if given.recipe.precision == "auto":
        raise BadInputError(
            f"{given.option('stochastic_rounding')} needs 16-bit weights, which {given.option('precision')} "
            f"never uses; add --precision {_HALF_WEIGHTS}."
        )
    if not given.is_overruled("stochastic_rounding", by="precision"):
        raise BadInputError(
            f"{given.option('stochastic_rounding')} has no effect with {given.option('precision')}; "
            f"--precision {_HALF_WEIGHTS} works."
        )


def _check_list(given: Given) -> None:
    if given.recipe.precision_list is not None and given.recipe.precision == _HALF_WEIGHTS:
        raise BadInputError(
            "--precision-list keeps layers in float32, but with "
            f"{given.option('precision')} all weights have 16 bits; --precision 16.32 works."
        )


def _check_stages(given: Given) -> None:
    is_half = given.recipe.precision == _HALF_WEIGHTS
    for option in given.recipe.stage_options:
        own = option.get("precision", given.recipe.precision)
        if (own == _HALF_WEIGHTS) != is_half:
            works = _HALF_WEIGHTS if own == _HALF_WEIGHTS else "16.32"
            raise BadInputError(
                f"--stage-options of stage {option['stage']}: precision {own} cannot be combined with "
                f"{given.option('precision')}, as the weights of all stages must have one type; leave it "
                f"out, or use --precision {works}."
            )


def _check_exceptions(given: Given) -> None:
    recipe = given.recipe
    compiles = any(option.get("compile") for option in recipe.stage_options)
    if recipe.fp_exceptions and (recipe.compile == "on" or compiles):
        raise BadInputError(
            f"{given.option('fp_exceptions')} checks the output of every layer, which compiled layers do not "
            "expose; use --compile off."
        )
