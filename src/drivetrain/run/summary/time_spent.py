"""Where the time of a run went, whether data loading was the bottleneck, and how to save time."""

import math
from dataclasses import dataclass

from drivetrain.catalogue.input_kinds import plural_of
from drivetrain.console.figures import rounded_speed, speed_text
from drivetrain.data.feeds.stream import StreamFeed
from drivetrain.models.input_form import input_kind_of_model
from drivetrain.recipe.schema import Recipe
from drivetrain.run.loop.loop import RunLoop
from drivetrain.run.summary.part_words import PART_WORDS

__all__ = ["DataBound", "data_bound_of", "suggest", "time_spent", "unit_of"]

# Below 15% of the time, a part is not worth a suggestion. CPU threads that worked less than 60% of the time
# of the updates are taken as displaced by other processes.
_PART_WORTH_A_WORD = 0.15
_BUSY_ELSEWHERE = 0.6
_MEASURED = ("validation", "checkpoint", "logging", "pictures")
_REMEDIES = {
    "start-up": "data are read and the model is built once per start; this matters less in a longer run.",
    "data": "fewer or cheaper augmentations, or more --num-workers for streamed data, would shorten it.",
    "transfer": "try --accelerator-side-preprocess --eight-bit-transfer.",
    "validation": "try a larger --evaluate-every.",
    "checkpoint": "try a larger --checkpoint-every.",
    "logging": "try fewer --logs-per-epoch.",
    "pictures": "they are drawn once, at the end; this matters less in a longer run.",
    "probing": "the answer is remembered for the next run; --compile on or --compile off skips it.",
    "compilation": "compiled code is reused by the next run of the same command; --compile off avoids it.",
    "other": "time outside all other parts; --verbosity verbose shows after which events it was spent.",
}
# Data sets that `data pack` reads.
_PACKABLE = ("image-folder", "imagenet")
# If updates wait less than this share for data, faster loading would hardly shorten the run.
_DATA_SHARE_WORTH_A_WORD = 0.1


def time_spent(loop: RunLoop) -> dict[str, float]:
    """Seconds that this process spent on each part of the run."""
    data_s, transfer_s = loop.times.feed_seconds
    first_update_s = loop.times.first_update_s if loop.compiles else 0.0
    step = max(0.0, loop.times.execution_s - data_s - transfer_s - first_update_s)
    known = {"step": step, "data": data_s, "transfer": transfer_s}
    known |= {part: loop.context.clock.seconds.get(part, 0.0) for part in _MEASURED}
    if loop.compiles:
        known["compilation"] = loop.compile_s
    if loop.choice is not None and (probing_s := loop.context.clock.seconds.get("probing", 0.0)):
        known["probing"] = max(0.0, probing_s - loop.choice.compiling_s)
    other = max(0.0, loop.context.clock.own_s - sum(known.values()))
    return {**known, "start-up": loop.context.clock.start_up_s, "other": other}


def suggest(spent: dict[str, float], *, recipe: Recipe, processor_share: float | None = None) -> str:
    """One sentence about the largest share of the time that could be saved.

    `processor_share` is the share of its threads' time in which a CPU really worked; None on an accelerator.
    """
    total = sum(spent.values()) or 1.0
    shares = {part: seconds / total for part, seconds in spent.items()}
    part = max((name for name in shares if name != "step"), key=lambda name: shares[name])
    if shares[part] > shares["step"]:
        return f"{shares[part]:.0%} of the time goes to {PART_WORDS.get(part, part)}: {_REMEDIES[part]}"
    if processor_share is not None and processor_share < _BUSY_ELSEWHERE and recipe.num_threads != 1:
        return (
            f"the CPU worked for this run {processor_share:.0%} of the time: something else is using it; "
            "--num-threads 1 waits less for busy cores."
        )
    step = f"{shares['step']:.0%} of the time is the training step itself"
    if shares[part] < _PART_WORTH_A_WORD:
        return f"{step}; only a faster device helps."
    return f"{step}, {shares[part]:.0%} goes to {PART_WORDS.get(part, part)}: {_REMEDIES[part]}"


@dataclass(frozen=True, slots=True, kw_only=True)
class DataBound:
    """Images per second that the loader delivers, and that the device could train without waiting."""

    loader_images_per_second: float
    device_images_per_second: float
    remedy: str

    def to_json(self) -> dict[str, float]:
        """For the summary event."""
        return {
            "loader_images_per_second": rounded_speed(self.loader_images_per_second),
            "device_images_per_second": rounded_speed(self.device_images_per_second),
        }

    def sentence(self, *, unit: str = "images") -> str:
        """The finding of the final summary."""
        loader, device = map(speed_text, (self.loader_images_per_second, self.device_images_per_second))
        return (
            f"Data loading was the bottleneck: the loader delivers {loader} {unit}/s and the device could "
            f"train {device}; {self.remedy}."
        )


def data_bound_of(loop: RunLoop) -> DataBound | None:
    """The speeds of loader and device, if a streamed run waited for data for a tenth of its time or more."""
    if not isinstance(loop.context.program.feed, StreamFeed) or not loop.replica_times:
        return None
    slowest = max(loop.replica_times, key=lambda times: times.data_s / times.execution_s)
    if slowest.data_s < _DATA_SHARE_WORTH_A_WORD * slowest.execution_s:
        return None
    # Without loader workers, loading and training alternate, so loading has only the time spent waiting.
    loading_s = slowest.data_s if loop.context.recipe.num_workers == 0 else slowest.execution_s
    loader = loop.times.timed_samples / loading_s
    if math.isfinite(loop.times.fastest_update_s):
        device = loop.context.program.order.global_batch / loop.times.fastest_update_s
    else:
        device = loop.times.timed_samples / max(slowest.execution_s - slowest.data_s, 1e-9)
    if device <= loader:
        return None
    remedy = _faster_loading(loop.context.recipe)
    return DataBound(loader_images_per_second=loader, device_images_per_second=device, remedy=remedy)


def _faster_loading(recipe: Recipe) -> str:
    """The option that helps most of those that are not in use."""
    if recipe.data_placement == "stream":
        return "--data-placement auto keeps data that fit on the device"
    if recipe.num_workers == 0:
        return "try --num-workers 2, which load beside the training"
    see = "`drivetrain bench data` shows what takes the loader's time"
    if recipe.dataset in _PACKABLE:
        return f"try more --num-workers, or `drivetrain data pack --image-size N`, which decodes once; {see}"
    return f"try more --num-workers; {see}"


def unit_of(loop: RunLoop) -> str:
    """What is counted per second: images, rows or signals."""
    return plural_of(input_kind_of_model(loop.context.program.model))
