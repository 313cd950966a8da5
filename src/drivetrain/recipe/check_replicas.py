"""The rules of replicas: how many there are, and which of them do something together."""

from drivetrain.errors import BadInputError
from drivetrain.recipe.given import Given
from drivetrain.recipe.schema import Recipe


def derive_replicas(recipe: Recipe) -> Recipe:
    """The recipe with as many replicas as `--devices` makes; one device holds a replica."""
    if recipe.devices is None:
        return recipe
    return recipe.model_copy(update={"replicas": recipe.devices})


def check_replicas(given: Given) -> None:
    """Parts of the replicas must be parts of them."""
    recipe = given.recipe
    if recipe.devices is not None and given.is_asked("replicas") and recipe.replicas != recipe.devices:
        raise BadInputError(
            f"{given.option('devices')} and {given.option('replicas')} contradict each other, as a replica "
            "takes one device; leave one out."
        )
    replicas = recipe.devices or recipe.replicas
    size = recipe.dbn_replica_group_size
    if replicas % size:
        raise BadInputError(
            f"{given.option('dbn_replica_group_size')} does not divide {replicas} replicas; "
            f"--dbn-replica-group-size {_nearest_divisor(replicas, size)} works."
        )
    if recipe.validation_replicas is not None and recipe.validation_replicas > replicas:
        raise BadInputError(
            f"{given.option('validation_replicas')} is more than the {replicas} replicas there are; "
            f"--validation-replicas {replicas} works."
        )


def check_parallel_folds(given: Given) -> None:
    """Folds side by side are processes of one replica each."""
    recipe = given.recipe
    if recipe.parallel_folds > 1 and (recipe.devices or recipe.replicas) > 1:
        raise BadInputError(
            f"{given.option('parallel_folds')} trains folds side by side, each on one replica; leave out "
            "--replicas, or train one fold after the other on all of them with --parallel-folds 1."
        )


def _nearest_divisor(number: int, wished: int) -> int:
    divisors = [size for size in range(1, number + 1) if number % size == 0]
    return min(divisors, key=lambda size: (abs(size - wished), size))
