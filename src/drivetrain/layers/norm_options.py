"""Options about batch norm that a model has no use for."""

from torch import nn

from drivetrain.layers.batch_norm import OWNED_BATCH_NORMS
from drivetrain.recipe.schema import Recipe

__all__ = ["idle_norm_options", "norm_options"]


def idle_norm_options(recipe: Recipe, model: nn.Module) -> list[str]:
    """Says which options about batch norm have no effect on a model, which must still have its own layers."""
    norms = [module for module in model.modules() if type(module) in OWNED_BATCH_NORMS]
    if not norms:
        return [
            f"{option} has no effect: --model {recipe.model} has no batch norm that trains."
            for option in norm_options(recipe)
        ]
    if recipe.bn_momentum is None or any(module.running_mean is not None for module in norms):
        return []
    return [
        f"--bn-momentum {recipe.bn_momentum} has no effect: no batch norm of --model {recipe.model} has "
        "running statistics."
    ]


def norm_options(recipe: Recipe) -> list[str]:
    """The options about batch norm that were asked for, as they are written."""
    asked = {
        f"--bn-momentum {recipe.bn_momentum}": recipe.bn_momentum is not None,
        "--stable-norm True": recipe.stable_norm,
        f"--dbn-replica-group-size {recipe.dbn_replica_group_size}": recipe.dbn_replica_group_size > 1,
    }
    return [option for option, is_asked in asked.items() if is_asked]
