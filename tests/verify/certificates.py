"""Certificates of a few updates, as tests ask for them."""

from typing import Any

from torch import nn

from drivetrain.console.reporter import Reporter
from drivetrain.ranks.pool import RankPool
from drivetrain.recipe.load import resolve_recipe
from drivetrain.verify.certificate import Certificate, verify_resolved
from drivetrain.verify.layouts import parse_cuts
from drivetrain.verify.measure import DtypeName
from drivetrain.verify.points import Requirement

BOTH: tuple[DtypeName, ...] = ("float32", "float64")
MODELS = f"{__package__}.models"
UNET: dict[str, Any] = {
    "dataset": "synthetic-em",
    "model": "unet_same",
    "model_width": 2,
    "model_params": {"depth": 2, "norm": "batch"},
    "image_size": 16,
}


def verified(
    layouts: str,
    *,
    pool: RankPool | None = None,
    dtypes: tuple[DtypeName, ...] = BOTH,
    updates: int | None = 3,
    quick: bool = False,
    requires: Requirement = "equal",
    module: nn.Module | None = None,
    **options: Any,
) -> Certificate:
    """The certificate of some layouts; of the digits unless the options say otherwise."""
    resolved = resolve_recipe(overrides={"dataset": "digits", **options})
    with Reporter(quiet=True) as reporter:
        return verify_resolved(
            resolved,
            reporter=reporter,
            cuts=parse_cuts(layouts),
            updates=updates,
            dtypes=dtypes,
            quick=quick,
            requires=requires,
            make_model=None if module is None else lambda _: module,
            pool=pool,
        )
