"""`bench data`: how fast the input pipeline of a recipe delivers batches, as a whole and stage by stage."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import count
from time import perf_counter
from typing import Any

import torch

from drivetrain.bench.clock import counting
from drivetrain.bench.delivery_subject import Delivery, prepare_delivery, stage_speeds
from drivetrain.bench.machine import describe_machine
from drivetrain.bench.repetition import Repetition, spread_notes
from drivetrain.bench.result import FIGURES, BenchResult, Entry, median_of, plain_number
from drivetrain.bench.subject import asked_values
from drivetrain.console.reporter import Reporter
from drivetrain.core.progress import showing_progress
from drivetrain.data.feeds.feed import Feed, ResidentFeed
from drivetrain.data.feeds.held_once import hold_once
from drivetrain.data.feeds.loader import default_num_workers
from drivetrain.ranks.collective_timeout import FIRST_UPDATE_TIMEOUT_S
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.recipe.fields import without_augmentation
from drivetrain.recipe.load import ResolvedRecipe
from drivetrain.run.train import set_up_device

__all__ = ["DeliveryMeasurement", "delivery_result", "keeps_up", "measure_delivery"]

_STAGES = {"read_per_second": "reading", "preprocess_per_second": "preprocessing"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliveryMeasurement:
    """The measurement of all ranks, which is pickled. Workers and threads are per rank."""

    entries: list[Entry]
    workload: dict[str, Any]
    global_batch: int
    is_resident: bool
    num_workers: int
    threads: int
    machine: dict[str, Any]


def measure_delivery(
    resolved: ResolvedRecipe, repetition: Repetition, *, reporter: Reporter, group: ReplicaGroup = ALONE
) -> DeliveryMeasurement:
    """Measures the feeds of all replicas, with and without augmentation; a step is one weight update."""
    group.set_timeout(FIRST_UPDATE_TIMEOUT_S)
    with set_up_device(resolved.recipe, group) as device:
        with showing_progress(reporter):
            own = prepare_delivery(resolved, resolved.recipe, device=device, group=group)
        hold_once(own.data, group=group)
        variants = {"data without augmentation": own}
        if own.changes_samples:
            plain_recipe = resolved.recipe.model_copy(update=without_augmentation())
            plain = prepare_delivery(resolved, plain_recipe, device=device, group=group)
            hold_once(plain.data, group=group)
            variants = {"data with augmentation": own, "data without augmentation": plain}
        reporter.start_progress("bench data", done=0, total=repetition.total * len(variants))
        entries, is_resident = [], False
        for number, (name, delivery) in enumerate(variants.items()):
            show = counting(reporter, done=number * repetition.total, what=name)
            entry, is_resident = _measure(delivery, name, repetition, show)
            entries.append(entry)
        reporter.stop_progress()
        return DeliveryMeasurement(
            entries=entries,
            workload=_workload(own),
            global_batch=own.plan.batch.global_batch,
            is_resident=is_resident,
            num_workers=_workers(own),
            threads=torch.get_num_threads(),
            machine=describe_machine(str(device.torch_device)),
        )


def delivery_result(
    resolved: ResolvedRecipe,
    measured: DeliveryMeasurement,
    repetition: Repetition,
    *,
    command: str,
    needed: float | None = None,
) -> BenchResult:
    """The figures of a feed, with everything that is needed to repeat the measurement."""
    return BenchResult(
        benchmark="data",
        command=command,
        machine=measured.machine,
        workload=measured.workload,
        settings={
            "placement": "resident" if measured.is_resident else "stream",
            **({} if measured.is_resident else {"num_workers": measured.num_workers}),
            "threads": measured.threads,
            "replicas": resolved.recipe.replicas,
            "global_batch_size": measured.global_batch,
            "warmup_steps": repetition.warmup_steps,
            "steps": repetition.steps,
            "repeats": repetition.repeats,
            **({} if needed is None else {"needed_images_per_second": plain_number(needed)}),
        },
        recipe=asked_values(resolved.recipe),
        entries=measured.entries,
        notes=[
            *spread_notes(measured.entries, repetition),
            "images/s: the feeds of all replicas together, as `train` uses them; read, preprocess and "
            "transfer: each stage by itself, without loader workers, summed over all replicas",
        ],
    )


def _workers(delivery: Delivery) -> int:
    asked = delivery.recipe.num_workers
    return default_num_workers(delivery.group.local_size) if asked is None else asked


def _workload(delivery: Delivery) -> dict[str, Any]:
    preprocess = delivery.preprocess
    return {
        "dataset": delivery.recipe.dataset,
        "image": f"{preprocess.channels}x{preprocess.height}x{preprocess.width}",
        "micro_batch_size": delivery.plan.batch.micro,
    }


def _measure(
    delivery: Delivery, name: str, repetition: Repetition, show: Callable[[], None]
) -> tuple[Entry, bool]:
    feed = delivery.feed()
    try:
        updates = count()
        _deliver(feed, delivery, updates, steps=repetition.warmup_steps, show=show)
        repeats = [
            {"images_per_second": _deliver(feed, delivery, updates, steps=repetition.steps, show=show)}
            for _ in range(repetition.repeats)
        ]
    finally:
        feed.close()
    of_ranks = delivery.group.gather(stage_speeds(delivery, repetition.steps))
    stages = {stage: sum(speeds[stage] for speeds in of_ranks) for stage in of_ranks[0]}
    figures = {"images_per_second": median_of(repeats, "images_per_second"), **stages}
    return Entry(name=name, figures=figures, repeats=repeats), isinstance(feed, ResidentFeed)


def _deliver(
    feed: Feed, delivery: Delivery, updates: Iterator[int], *, steps: int, show: Callable[[], None]
) -> float:
    """Images per second over `steps` updates without a model; the slowest replica counts."""
    delivery.device.synchronise()
    delivery.group.barrier()
    started_s = perf_counter()
    for _ in range(steps):
        for _batch in feed.micro_batches(next(updates)):
            pass
        show()
    delivery.device.synchronise()
    longest_s: float = max(delivery.group.gather(perf_counter() - started_s))
    return steps * delivery.order.global_batch / longest_s


def keeps_up(result: BenchResult, *, needed: float) -> str:
    """One sentence: whether the feed delivers what is needed and, if not, which stage limits it."""
    figures, text = result.entries[0].figures, FIGURES["images_per_second"].text
    speed = figures["images_per_second"]
    said = f"it delivers {text(speed)} images/s, {plain_number(needed)} are needed"
    if speed >= needed:
        return f"the feed keeps up: {said}."
    if result.settings["placement"] == "resident":
        return (
            f"the feed does not keep up: {said}; the data are resident in memory, and preprocessing alone "
            f"reaches {text(figures['preprocess_per_second'])} images/s."
        )
    stages = {words: figures[name] for name, words in _STAGES.items() if name in figures}
    slowest = min(stages, key=stages.__getitem__)
    return (
        f"the feed does not keep up: {said}; {slowest} is the slowest stage: {text(stages[slowest])} "
        "images/s without loader workers; more workers may help (--num-workers)."
    )
