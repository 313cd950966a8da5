"""Smaller micro-batches at the same global batch; needs no torch."""

from collections.abc import Iterator, Mapping

from drivetrain.recipe.layout import batch_of
from drivetrain.recipe.schema import Recipe

__all__ = [
    "FITTED_FIELDS",
    "fitted_values",
    "normalised_set",
    "refitted",
    "smaller_recipes",
    "with_micro_batch",
]

FITTED_FIELDS = (
    "micro_batch_size",
    "dbn_replica_group_size",
    "validation_micro_batch_size",
    "recomputation",
)
"""The options that a run may set to fit the memory; the accumulation follows from them."""


def fitted_values(recipe: Recipe) -> dict[str, int | None]:
    """The values of the options that a run may set to fit the memory."""
    return {name: getattr(recipe, name) for name in FITTED_FIELDS}


def normalised_set(recipe: Recipe) -> int:
    """The number of samples that batch norm normalises together."""
    return recipe.micro_batch_size * recipe.dbn_replica_group_size


def refitted(recipe: Recipe, values: Mapping[str, int | None]) -> Recipe | None:
    """The recipe with the values that an earlier part of a run found to fit; None if they are impossible."""
    smaller = with_micro_batch(
        recipe, size=values["micro_batch_size"] or 1, group=values["dbn_replica_group_size"] or 1
    )
    if smaller is None:
        return None
    return smaller.model_copy(
        update={
            "validation_micro_batch_size": values.get("validation_micro_batch_size"),
            "recomputation": bool(values.get("recomputation", recipe.recomputation)),
        }
    )


def with_micro_batch(recipe: Recipe, *, size: int, group: int) -> Recipe | None:
    """The recipe with another micro-batch and group at the same global batch; None if that is impossible."""
    batch = batch_of(recipe)
    accumulation, rest = divmod(batch.global_batch, size * batch.replicas)
    if rest or not accumulation or recipe.replicas % group:
        return None
    by_count = {"gradient_accumulation_count": accumulation}
    by_total = {"global_batch_size": batch.global_batch}
    return recipe.model_copy(
        update={
            "micro_batch_size": size,
            "dbn_replica_group_size": group,
            **(by_count if recipe.global_batch_size is None else by_total),
        }
    )


def smaller_recipes(recipe: Recipe, *, normalises: bool, may_change_set: bool) -> Iterator[Recipe]:
    """The recipe with half its micro-batch, then with ever smaller ones, at the same global batch.

    With a model that normalises over the batch, more replicas normalise together, so that the set of samples
    stays the same. Where there are too few replicas, the set changes if it may; else that size is left out.
    """
    size, group = recipe.micro_batch_size, recipe.dbn_replica_group_size
    for smaller in range(size // 2, 0, -1):
        larger_group, rest = divmod(size * group, smaller)
        kept = with_micro_batch(recipe, size=smaller, group=larger_group) if normalises and not rest else None
        if kept is None and (may_change_set or not normalises):
            kept = with_micro_batch(recipe, size=smaller, group=group)
        if kept is not None:
            yield kept
