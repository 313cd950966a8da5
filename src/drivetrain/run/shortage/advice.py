"""The sentences about memory that did not suffice."""

from drivetrain.recipe.layout import batch_of, stage_count
from drivetrain.recipe.schema import Recipe
from drivetrain.recipe.smaller_batch import normalised_set
from drivetrain.run.shortage.outcome import RankReport

__all__ = ["batch_options", "less_memory", "no_smaller_batch", "other_set", "what_follows", "what_happened"]


def what_happened(report: RankReport, recipe: Recipe) -> str:
    """Where memory ran out, and with which batch."""
    rank = f" of rank {report.rank}" if batch_of(recipe).replicas * stage_count(recipe) > 1 else ""
    batch = (
        "" if report.part == "validation" else f" with {batch_options(recipe, among=('micro_batch_size',))}"
    )
    return f"the memory{rank} did not suffice {report.where}{batch}"


def batch_options(
    recipe: Recipe, *, among: tuple[str, ...] = ("micro_batch_size", "accumulation", "group")
) -> str:
    """The batch of a recipe as options."""
    batch = batch_of(recipe)
    by_total = recipe.global_batch_size is not None
    words = {
        "micro_batch_size": f"--micro-batch-size {recipe.micro_batch_size}",
        "accumulation": f"--global-batch-size {batch.global_batch}"
        if by_total
        else f"--gradient-accumulation-count {batch.accumulation}",
        "group": f"--dbn-replica-group-size {recipe.dbn_replica_group_size}"
        if recipe.dbn_replica_group_size > 1
        else "",
    }
    return " ".join(words[name] for name in among if words[name])


def what_follows(report: RankReport, recipe: Recipe, smaller: Recipe, *, resumed: int) -> str:
    """How the run goes on with a smaller batch."""
    options = batch_options(smaller)
    if report.part == "validation":
        options = f"--validation-micro-batch-size {smaller.validation_micro_batch_size}"
    where = f"after update {resumed}" if resumed else "from its start"
    return f"{what_happened(report, recipe)}; the run goes on {where} with {options}."


def other_set(report: RankReport, recipe: Recipe, smaller: Recipe) -> str:
    """Why a run with batch norm stops: a smaller micro-batch would change its result."""
    before, after = normalised_set(recipe), normalised_set(smaller)
    return (
        f"{what_happened(report, recipe)}, and with {batch_options(smaller)} batch norm would normalise "
        f"over {after} samples instead of {before}, which changes the result; add --fit to the same command "
        "to allow it and continue."
    )


def no_smaller_batch(report: RankReport, recipe: Recipe) -> str:
    """What needs less memory where the smallest batch needs too much."""
    return f"{what_happened(report, recipe)}, and no smaller batch is possible; {less_memory(recipe)}."


def less_memory(recipe: Recipe) -> str:
    """The options that take less memory than the recipe."""
    more = [
        "" if recipe.recomputation else "--recomputation",
        f"--stages {2 * stage_count(recipe)} on more devices",
        "smaller images with --image-size",
        "" if recipe.precision.startswith("16") else "--precision 16.32",
    ]
    named = [words for words in more if words]
    return f"{', '.join(named[:-1])} or {named[-1]} take less memory"
