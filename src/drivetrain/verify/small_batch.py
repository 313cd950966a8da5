"""Chooses the batch of a verification: like the recipe's, but small enough to be computed quickly."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import lcm

from drivetrain.core.errors import BadInputError
from drivetrain.pipeline.cutting.settings import stage_settings
from drivetrain.recipe.given import Given
from drivetrain.recipe.layout import device_of_stage, stage_count
from drivetrain.recipe.schema import Recipe
from drivetrain.schedules.accumulation_check import check_accumulation
from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.checker import live_micro_batches
from drivetrain.verify.cuts import Cut, StageChoice

__all__ = ["SmallBatch", "choose_batch"]

# All processes share the cores of one machine; more of them would slow each other down too much.
_MOST_RANKS_OF_STAGES = 4


@dataclass(frozen=True, slots=True)
class _Sizes:
    """The largest micro-batch, and the global batch that it should fit."""

    micro: int
    total: int


# 8 samples are the smallest batch that can be split into 4 micro-batches of 2, the fewest for batch norm; 4
# samples can be split into 2 of them.
_USUAL, _QUICK = _Sizes(4, 8), _Sizes(2, 4)


@dataclass(frozen=True, slots=True, kw_only=True)
class SmallBatch:
    """Batch norm normalises `micro` x `group` samples together; `own` is the recipe's layout, if any."""

    micro: int
    group: int
    global_batch: int
    own: tuple[Cut, ...] = ()
    notes: tuple[str, ...] = ()


def choose_batch(given: Given, *, quick: bool = False) -> SmallBatch:
    """Micro-batches of at most 4 in a global batch of 8, unless the command line sets other sizes.

    With `quick`, they are half as large. If the recipe has stages, each replica gets as many micro-batches as
    the schedule needs.
    """
    recipe = given.recipe
    group = recipe.dbn_replica_group_size
    is_laid_out = any(map(given.is_typed, ("replicas", "devices", "dbn_replica_group_size")))
    replicas = recipe.replicas if is_laid_out else 1
    is_accumulated = given.is_typed("gradient_accumulation_count")
    accumulation = recipe.gradient_accumulation_count if is_accumulated else None
    turns = _turns(recipe)
    sizes = _QUICK if quick else _USUAL
    if given.is_typed("global_batch_size"):
        assert recipe.global_batch_size is not None
        total = recipe.global_batch_size
        sharers = replicas if is_laid_out else group
        micro = _micro_within(given, sizes=sizes, total=total, sharers=sharers, turns=turns)
    else:
        most = recipe.micro_batch_size if given.is_typed("micro_batch_size") else _most(turns, sizes=sizes)
        micro = min(recipe.micro_batch_size, most)
        total = _total(
            sizes=sizes, micro=micro, group=group, replicas=replicas, accumulation=accumulation, turns=turns
        )
    own = Cut(replicas=replicas, accumulation=total // (micro * replicas), group=group if is_laid_out else 1)
    own = _with_stages(own, recipe)
    is_own = replicas > 1 or accumulation is not None or replace(own, accumulation=1) != Cut()
    batch = SmallBatch(micro=micro, group=group, global_batch=total, own=(own,) if is_own else ())
    return _within_reach(batch)


def _turns(recipe: Recipe) -> int:
    """The number of micro-batches that keeps all stages busy; the grouped schedule needs twice as many."""
    stages = stage_count(recipe)
    return 2 * stages if stages > 1 and recipe.pipeline_schedule == "grouped" else stages


def _most(turns: int, *, sizes: _Sizes) -> int:
    """The largest micro-batch with which all turns fit a small global batch; at least 2 for batch norm."""
    return max(2, min(sizes.micro, sizes.total // turns))


def _total(
    *, sizes: _Sizes, micro: int, group: int, replicas: int, accumulation: int | None, turns: int
) -> int:
    if accumulation is not None:
        return lcm(micro * replicas * accumulation, micro * group)
    if replicas > 1 or turns > 1:
        return lcm(micro * replicas * turns, micro * group, sizes.total)
    # At least two normalised sets, so that the batch can be split between them.
    return lcm(2 * micro * group, sizes.total)


def _micro_within(given: Given, *, sizes: _Sizes, total: int, sharers: int, turns: int) -> int:
    """The micro-batch size for a given global batch that is divided among `sharers` replicas."""
    micro = given.recipe.micro_batch_size
    if given.is_typed("micro_batch_size"):
        if total % (micro * sharers):
            works = max(1, round(total / (micro * sharers))) * micro * sharers
            raise BadInputError(
                f"--global-batch-size {total} is not a multiple of --micro-batch-size {micro}"
                f"{f' x {sharers} replicas' if sharers > 1 else ''}; --global-batch-size {works} works."
            )
        return micro
    fitting = [size for size in range(1, min(micro, sizes.micro) + 1) if total % (size * sharers) == 0]
    if not fitting:
        raise BadInputError(
            f"--global-batch-size {total} cannot be divided among {sharers} replicas; --global-batch-size "
            f"{max(1, round(total / sharers)) * sharers} works."
        )
    return max([size for size in fitting if total % (size * sharers * turns) == 0] or fitting)


def _with_stages(cut: Cut, recipe: Recipe) -> Cut:
    """Adds the recipe's pipeline stages to a layout."""
    stages = stage_count(recipe)
    check_accumulation(recipe.pipeline_schedule, stages=stages, accumulation=cut.accumulation)
    if stages == 1:
        return replace(cut, recomputation=recipe.recomputation, offloading=recipe.optimizer_state_offloading)
    schedule = build_schedule(
        recipe.pipeline_schedule, micro_batches=cut.accumulation, device_of=device_of_stage(recipe)
    )
    settings = stage_settings(recipe, live=live_micro_batches(schedule))
    return replace(
        cut,
        stages=stages,
        splits=recipe.pipeline_splits,
        split_by=recipe.split_by,
        schedule=recipe.pipeline_schedule,
        mapping=recipe.device_mapping,
        recomputation=_choice([one.recomputes for one in settings]),
        offloading=_choice([one.offloads for one in settings]),
    )


def _choice(flags: Sequence[bool]) -> StageChoice:
    return flags[0] if len(set(flags)) == 1 else tuple(i for i, flag in enumerate(flags) if flag)


def _within_reach(batch: SmallBatch) -> SmallBatch:
    """Runs a layout with stages in one process if it would need too many processes."""
    many = [cut for cut in batch.own if cut.devices > 1 and cut.ranks > _MOST_RANKS_OF_STAGES]
    if not many:
        return batch
    note = (
        f"stages: {many[0].replicas} replicas x {many[0].devices} devices need more than the "
        f"{_MOST_RANKS_OF_STAGES} processes that verify starts for stages, so one process runs all of them"
    )
    return replace(batch, own=tuple(cut.played() for cut in batch.own), notes=(note,))
