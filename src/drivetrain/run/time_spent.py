"""Where the time of a run went, and the one change that would save most of it."""

from drivetrain.recipe.schema import Recipe
from drivetrain.run.loop import RunLoop

_WORTH_A_WORD = 0.15
_BUSY_ELSEWHERE = 0.6


_REMEDIES = {
    "data": "fewer or cheaper augmentations, or a streamed set's --num-workers, would shorten it.",
    "transfer": "try --accelerator-side-preprocess --eight-bit-transfer.",
    "validation": "try a larger --evaluate-every.",
    "checkpoint": "try a larger --checkpoint-every.",
    "logging": "try fewer --logs-per-epoch.",
    "compilation": "the same command finds it done the next time; --compile off does without.",
}


def time_spent(loop: RunLoop) -> dict[str, float]:
    """Seconds of this process's part of the run, by what they were spent on."""
    data_s, transfer_s = loop.feed_seconds
    host = {part: loop.clock.seconds.get(part, 0.0) for part in ("validation", "checkpoint", "logging")}
    first_update_s = loop.first_update_s if loop.compiles else 0.0
    step = max(0.0, loop.execution_s - data_s - transfer_s - first_update_s)
    known = {"step": step, "data": data_s, "transfer": transfer_s, **host}
    if loop.compiles:
        known["compilation"] = loop.compile_s
    return {**known, "other": max(0.0, loop.clock.own_s - sum(known.values()))}


def suggest(spent: dict[str, float], *, recipe: Recipe, processor_share: float | None = None) -> str:
    """One sentence that names an option; the largest avoidable part decides.

    `processor_share` is how much of its threads' time a CPU really worked; None on an accelerator.
    """
    total = sum(spent.values()) or 1.0
    # A compiler leaves processors idle, too.
    compiles = spent.get("compilation", 0.0) / total >= _WORTH_A_WORD
    is_idle = processor_share is not None and processor_share < _BUSY_ELSEWHERE
    if is_idle and not compiles and recipe.num_threads != 1:
        return (
            f"the processor worked {processor_share:.0%} of the time: something else is using it; "
            "--num-threads 1 waits less."
        )
    avoidable = {part: seconds / total for part, seconds in spent.items() if part not in ("step", "other")}
    part = max(avoidable, key=lambda name: avoidable[name])
    if avoidable[part] < _WORTH_A_WORD:
        return (
            f"{spent['step'] / total:.0%} of the time is the training step itself; only a faster "
            f"device helps."
        )
    return f"{avoidable[part]:.0%} of the time goes to {part}: {_REMEDIES[part]}"
