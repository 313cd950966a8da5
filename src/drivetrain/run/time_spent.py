"""Where the time of a run went, and the one change that would save most of it."""

from drivetrain.recipe.schema import Recipe
from drivetrain.run.loop import RunLoop

_WORTH_A_WORD = 0.15


def time_spent(loop: RunLoop) -> dict[str, float]:
    """Seconds of this process's part of the run, by what they were spent on."""
    feed = loop.program.feed
    host = {part: loop.clock.seconds.get(part, 0.0) for part in ("validation", "checkpoint", "logging")}
    step = max(0.0, loop.execution_s - feed.data_seconds - feed.transfer_seconds)
    known = {"step": step, "data": feed.data_seconds, "transfer": feed.transfer_seconds, **host}
    return {**known, "other": max(0.0, loop.clock.own_s - sum(known.values()))}


def suggest(spent: dict[str, float], *, recipe: Recipe) -> str:
    """One sentence that names an option; the largest avoidable part decides."""
    total = sum(spent.values()) or 1.0
    avoidable = {part: seconds / total for part, seconds in spent.items() if part not in ("step", "other")}
    part = max(avoidable, key=lambda name: avoidable[name])
    if avoidable[part] < _WORTH_A_WORD:
        return (
            f"{spent['step'] / total:.0%} of the time is the training step itself; only a faster "
            f"device helps."
        )
    return f"{avoidable[part]:.0%} of the time goes to {part}: {_remedy(part, recipe)}"


def _remedy(part: str, recipe: Recipe) -> str:
    remedies = {
        "data": f"try --data-placement resident, or --num-workers {(recipe.num_workers or 0) + 2}.",
        "transfer": "try --accelerator-side-preprocess --eight-bit-transfer.",
        "validation": "try a larger --evaluate-every.",
        "checkpoint": "try a larger --checkpoint-every.",
        "logging": "try fewer --logs-per-epoch.",
    }
    return remedies[part]
