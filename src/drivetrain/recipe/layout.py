"""The layout of a recipe (replicas, stages, devices, ranks) and its batch sizes; needs no torch."""

from dataclasses import dataclass
from fractions import Fraction

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.schema import Recipe

__all__ = [
    "BatchArithmetic",
    "batch_of",
    "device_of_stage",
    "devices_per_replica",
    "rank_count",
    "resolve_batch",
    "stage_count",
]


def stage_count(recipe: Recipe) -> int:
    """The number of pipeline stages."""
    return recipe.stages or len(recipe.pipeline_splits) + 1


def device_of_stage(recipe: Recipe) -> tuple[int, ...]:
    """The device of each stage, numbered within a replica."""
    return recipe.device_mapping or tuple(range(stage_count(recipe)))


def devices_per_replica(recipe: Recipe) -> int:
    """The number of devices that hold one replica."""
    return max(device_of_stage(recipe)) + 1


def rank_count(recipe: Recipe) -> int:
    """The number of ranks, one process per device."""
    return recipe.replicas * devices_per_replica(recipe)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchArithmetic:
    """Batch sizes: micro-batch x replicas x accumulation = global batch."""

    micro: int
    replicas: int
    accumulation: int
    warnings: tuple[str, ...] = ()

    @property
    def global_batch(self) -> int:
        """Samples per weight update."""
        return self.micro * self.replicas * self.accumulation

    @property
    def micro_batches_per_update(self) -> int:
        """Micro-batches of all replicas per weight update."""
        return self.accumulation * self.replicas


def batch_of(recipe: Recipe) -> BatchArithmetic:
    """The batch sizes of a recipe."""
    return resolve_batch(
        micro=recipe.micro_batch_size,
        replicas=recipe.replicas,
        accumulation=recipe.gradient_accumulation_count,
        global_batch=recipe.global_batch_size,
    )


def resolve_batch(
    *, micro: int, replicas: int, accumulation: int | None, global_batch: int | None
) -> BatchArithmetic:
    """Batch sizes from the gradient accumulation or from the global batch size, whichever was given."""
    if global_batch is None:
        return BatchArithmetic(micro=micro, replicas=replicas, accumulation=accumulation or 1)
    if accumulation is not None:
        raise BadInputError(
            f"--gradient-accumulation-count {accumulation} and --global-batch-size {global_batch} cannot "
            f"both be given; leave one out: the count alone gives a global batch of "
            f"{micro * replicas * accumulation} samples."
        )
    return _from_global_batch(micro=micro, replicas=replicas, asked=global_batch)


def _from_global_batch(*, micro: int, replicas: int, asked: int) -> BatchArithmetic:
    # round() takes a half to the even neighbour. Runs depend on this: another rounding would change the
    # global batch of an existing recipe.
    accumulation = round(Fraction(asked, micro * replicas))
    if accumulation == 0:
        raise BadInputError(
            f"--global-batch-size {asked} is too small for --micro-batch-size {micro} and --replicas "
            f"{replicas}; the smallest that works is --global-batch-size {micro * replicas}"
            f"{_smaller_micro(asked, replicas=replicas)}."
        )
    used = micro * replicas * accumulation
    warnings = (
        () if used == asked else (_rounding_warning(micro=micro, replicas=replicas, asked=asked, used=used),)
    )
    return BatchArithmetic(micro=micro, replicas=replicas, accumulation=accumulation, warnings=warnings)


def _smaller_micro(asked: int, *, replicas: int) -> str:
    """Advice on the micro-batch size that makes a small global batch possible; may be empty."""
    return "" if asked % replicas else f", or --micro-batch-size {asked // replicas} keeps {asked}"


def _rounding_warning(*, micro: int, replicas: int, asked: int, used: int) -> str:
    return (
        f"--global-batch-size {asked} is not a multiple of micro-batch {micro} x {replicas} replicas; "
        f"{used} is used instead."
    )
