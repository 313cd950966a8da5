"""The rules for replicas: their number, batch-norm groups, validation replicas and parallel folds."""

from collections.abc import Mapping

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.given import Given
from drivetrain.recipe.layout import devices_per_replica, rank_count
from drivetrain.recipe.schema import Recipe

__all__ = [
    "PartialReplicaError",
    "check_parallel_folds",
    "check_replicas",
    "derive_replicas",
    "warn_of_larger_batch",
]


class PartialReplicaError(BadInputError):
    """The devices do not hold a whole number of replicas; `working` holds the nearest numbers that do."""

    def __init__(self, sentence: str, *, per_replica: int, working: tuple[int, ...]) -> None:
        super().__init__(sentence)
        self.per_replica, self.working = per_replica, working


def derive_replicas(recipe: Recipe, origins: Mapping[str, str]) -> Recipe:
    """The recipe with the number of replicas that fit on `--devices`, unless `--replicas` was given too."""
    if recipe.devices is None or Given(recipe, origins).is_asked("replicas"):
        return recipe
    replicas = recipe.devices // max(1, devices_per_replica(recipe))
    return recipe.model_copy(update={"replicas": max(1, replicas)})


def check_replicas(given: Given) -> None:
    """Devices, batch-norm groups and validation replicas must fit the number of replicas."""
    recipe = given.recipe
    if recipe.devices is not None and recipe.devices != rank_count(recipe):
        raise _misfit(given, devices=recipe.devices)
    size = recipe.dbn_replica_group_size
    if recipe.replicas % size:
        raise BadInputError(
            f"{given.option('dbn_replica_group_size')} does not divide the {recipe.replicas} replicas; "
            f"--dbn-replica-group-size {_nearest_divisor(recipe.replicas, size)} works."
        )
    if recipe.validation_replicas is not None and recipe.validation_replicas > recipe.replicas:
        raise BadInputError(
            f"{given.option('validation_replicas')} is more than the {recipe.replicas} replicas; "
            f"--validation-replicas {recipe.replicas} works."
        )


def warn_of_larger_batch(given: Given) -> str | None:
    """Warns that more replicas make the global batch larger, unless one place sets both on purpose."""
    recipe = given.recipe
    counted_by = "replicas" if recipe.devices is None else "devices"
    is_written_so = not given.is_typed(counted_by) and given.same_source(counted_by, "micro_batch_size")
    if recipe.replicas == 1 or recipe.global_batch_size is not None or is_written_so:
        return None
    alone = recipe.micro_batch_size * (recipe.gradient_accumulation_count or 1)
    return (
        f"{given.option(counted_by)} makes the global batch {recipe.replicas} times as large: each weight "
        f"update takes {alone * recipe.replicas} samples instead of {alone}, and an epoch has fewer updates; "
        f"{_batch_advice(recipe, alone=alone)}."
    )


def _batch_advice(recipe: Recipe, *, alone: int) -> str:
    """The options that keep the global batch of one replica, or come closest to it."""
    micro, replicas, count = recipe.micro_batch_size, recipe.replicas, recipe.gradient_accumulation_count
    instead = "" if count is None else f" in place of --gradient-accumulation-count {count}"
    if alone % (micro * replicas) == 0:
        return f"--global-batch-size {alone}{instead} keeps it at {alone}"
    smaller = _share_of_replica(micro, replicas=replicas, alone=alone)
    kept = max(1, round(alone / (smaller * replicas))) * smaller * replicas
    if kept > alone:
        return "a smaller one is impossible, as each replica needs at least one sample"
    options = f"--micro-batch-size {smaller} --global-batch-size {kept}{instead}"
    if kept < alone:
        return f"{options} comes closest with {kept}"
    together = micro // smaller
    keeps_set = smaller * together == micro and replicas % together == 0
    group = f" (add --dbn-replica-group-size {together} if the model has batch norm)" if keeps_set else ""
    return f"{options} keeps it at {alone}{group}"


def _share_of_replica(micro: int, *, replicas: int, alone: int) -> int:
    """A micro-batch size that keeps the global batch, if possible with the same samples per batch norm."""
    if micro % replicas == 0 or alone % replicas:
        return max(1, micro // replicas)
    return max(size for size in range(1, micro + 1) if alone // replicas % size == 0)


def check_parallel_folds(given: Given) -> None:
    """--parallel-folds trains each fold in one process, so it excludes replicas and stages."""
    recipe = given.recipe
    if recipe.parallel_folds == 1 or rank_count(recipe) == 1:
        return
    cause = "--replicas" if devices_per_replica(recipe) == 1 else "the stages"
    raise BadInputError(
        f"{given.option('parallel_folds')} trains several folds at once, each in one process; leave out "
        f"{cause}, or train one fold after the other on {rank_count(recipe)} devices with --parallel-folds 1."
    )


def _misfit(given: Given, *, devices: int) -> BadInputError:
    per_replica = devices_per_replica(given.recipe)
    takes = f"a replica takes {per_replica} device{'s' if per_replica > 1 else ''}"
    if devices % per_replica == 0:
        return BadInputError(
            f"{given.option('devices')} and {given.option('replicas')} contradict each other, as {takes}; "
            "leave one of them out."
        )
    less = devices - devices % per_replica
    working = tuple(number for number in (less, less + per_replica) if number)
    values = " or ".join(f"--devices {number}" for number in working)
    return PartialReplicaError(
        f"{given.option('devices')} does not fit a whole number of replicas, as {takes}; {values} works.",
        per_replica=per_replica,
        working=working,
    )


def _nearest_divisor(number: int, wished: int) -> int:
    divisors = [size for size in range(1, number + 1) if number % size == 0]
    return min(divisors, key=lambda size: (abs(size - wished), size))
