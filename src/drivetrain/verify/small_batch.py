"""The batch that a verification uses: the recipe's idea of one, small enough to be measured in a moment."""

from dataclasses import dataclass
from math import lcm

from drivetrain.errors import BadInputError
from drivetrain.recipe.given import Given
from drivetrain.verify.layouts import Cut

__all__ = ["SmallBatch", "choose_batch"]

_MICRO = 4
_GLOBAL = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallBatch:
    """`micro` x `group` samples are normalised together; `own` is the layout that was typed, if any."""

    micro: int
    group: int
    global_batch: int
    own: tuple[Cut, ...] = ()


def choose_batch(given: Given) -> SmallBatch:
    """Micro-batches of at most 4 in a global batch of 8, or what stands on the command line."""
    recipe = given.recipe
    group = recipe.dbn_replica_group_size
    is_laid_out = any(map(given.is_typed, ("replicas", "devices", "dbn_replica_group_size")))
    replicas = recipe.replicas if is_laid_out else 1
    is_accumulated = given.is_typed("gradient_accumulation_count")
    accumulation = recipe.gradient_accumulation_count if is_accumulated else None
    if given.is_typed("global_batch_size"):
        assert recipe.global_batch_size is not None
        total = recipe.global_batch_size
        micro = _micro_within(given, total=total, sharers=replicas if is_laid_out else group)
    else:
        most = recipe.micro_batch_size if given.is_typed("micro_batch_size") else _MICRO
        micro = min(recipe.micro_batch_size, most)
        total = _total(micro=micro, group=group, replicas=replicas, accumulation=accumulation)
    is_own = replicas > 1 or accumulation is not None
    own = Cut(replicas=replicas, accumulation=total // (micro * replicas), group=group if is_laid_out else 1)
    return SmallBatch(micro=micro, group=group, global_batch=total, own=(own,) if is_own else ())


def _total(*, micro: int, group: int, replicas: int, accumulation: int | None) -> int:
    if accumulation is not None:
        return lcm(micro * replicas * accumulation, micro * group)
    if replicas > 1:
        return lcm(micro * replicas, _GLOBAL)
    # Two normalised sets at least, so that there is something to cut between them.
    return lcm(2 * micro * group, _GLOBAL)


def _micro_within(given: Given, *, total: int, sharers: int) -> int:
    """The micro-batch of a global batch that was typed, which `sharers` replicas share out."""
    micro = given.recipe.micro_batch_size
    if given.is_typed("micro_batch_size"):
        if total % (micro * sharers):
            works = max(1, round(total / (micro * sharers))) * micro * sharers
            raise BadInputError(
                f"--global-batch-size {total} is no multiple of --micro-batch-size {micro}"
                f"{f' x {sharers} replicas' if sharers > 1 else ''}; --global-batch-size {works} works."
            )
        return micro
    fitting = [size for size in range(1, min(micro, _MICRO) + 1) if total % (size * sharers) == 0]
    if not fitting:
        raise BadInputError(
            f"--global-batch-size {total} cannot be shared out to {sharers} replicas; --global-batch-size "
            f"{max(1, round(total / sharers)) * sharers} works."
        )
    return max(fitting)
