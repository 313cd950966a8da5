"""The problem of a recipe: its layers, values and memory, with times that are measured or described."""

from collections.abc import Callable, Mapping
from functools import cache
from math import isqrt

from torch.fx import Node

from drivetrain.core.errors import BadInputError
from drivetrain.passes.gradient_sum import DEFAULT_BUFFER_BYTES
from drivetrain.pipeline.cutting.choose_stages import (
    FLOPS_PER_BYTE,
    SplitBy,
    choose_stages,
    possible_splits,
)
from drivetrain.pipeline.cutting.move_small import is_movable
from drivetrain.plan.precision import is_cpu
from drivetrain.planner.costs import LayerTime, Link, ModelTimes
from drivetrain.planner.devices.links import Links
from drivetrain.planner.search.problem import Layer, Problem, Saved, Value
from drivetrain.planner.search.subject import Subject
from drivetrain.recipe.layout import batch_of
from drivetrain.recipe.params import PipelineScheduleName
from drivetrain.schedules.by_name import SCHEDULE_NAMES

__all__ = ["ASSUMED_LINK", "assumed_times", "problem_from_recipe"]

# The device and the link that `--split-by cost` assumes: see FLOPS_PER_BYTE.
ASSUMED_LINK = Link(bytes_per_s=10e9, latency_s=20e-6)
_ASSUMED_LINKS = Links(device=ASSUMED_LINK, host=ASSUMED_LINK, devices_per_host=1, source="default")
_ASSUMED_FLOPS = ASSUMED_LINK.bytes_per_s * FLOPS_PER_BYTE
# A layer takes this long even where it computes little: launching its kernel, or a call on a CPU.
_LEAST_LAYER_S = 5e-6
# Between a device and its host, where no device file says it.
_HOST_BYTES_PER_S = 10e9


def assumed_times(subject: Subject) -> ModelTimes:
    """Times in proportion to FLOPs, on a device of 1 TFLOP/s; backward passes take twice as long."""
    seconds = [layer.flops / _ASSUMED_FLOPS for layer in subject.shapes.layers]
    return ModelTimes(
        layers=[
            LayerTime(
                name=layer.name,
                forward_s=max(each, _LEAST_LAYER_S),
                backward_s=max(2 * each, _LEAST_LAYER_S),
            )
            for layer, each in zip(subject.shapes.layers, seconds, strict=True)
        ],
        micro_batch_size=subject.recipe.micro_batch_size,
        update_s=0.0,
        source="described",
    )


def problem_from_recipe(
    subject: Subject,
    *,
    devices: int,
    times: ModelTimes | None = None,
    links: Links = _ASSUMED_LINKS,
    memory_limit: int | None = None,
    usable_share: float = 1.0,
    overhead_bytes: int = 0,
    stages: int | None = None,
    replicas: int | None = None,
    schedule: PipelineScheduleName | None = None,
    shares_cores: bool = False,
    timed_share: float = 1.0,
    host_bytes_per_s: float | None = None,
    typed: frozenset[str] = frozenset(),
) -> Problem:
    """The search problem of a recipe. Without `times` they follow from FLOPs.

    `stages`, `replicas` and `schedule` are given where the user chose them; `typed` are all fields that were.
    """
    recipe, batch = subject.recipe, batch_of(subject.recipe)
    known = times or assumed_times(subject)
    if known.micro_batch_size != recipe.micro_batch_size:
        raise ValueError("The times must be those of the recipe's micro-batch size.")
    schedules = SCHEDULE_NAMES if schedule is None else (schedule,)
    without = {"zero-bubble"} if recipe.compile == "on" else set()
    if schedule in without:
        raise BadInputError(
            f"--pipeline-schedule {schedule} is not possible with --compile on; "
            "--pipeline-schedule 1f1b works."
        )
    starts = set(possible_splits(subject.traced, subject.shapes))
    if stages is not None and stages > len(starts) + 1:
        raise BadInputError(
            f"--stages {stages}: this model can be split into 1 to {len(starts) + 1} stages; --stages "
            f"{len(starts) + 1} works."
        )
    return Problem(
        layers=_layers(subject, known, starts),
        values=_values(subject),
        saved=_saved(subject),
        first_device_bytes=subject.checkpoint_bytes,
        overhead_bytes=overhead_bytes,
        input_bytes=subject.memory.value_bytes.get(subject.traced.input, 0),
        micro_batch_size=recipe.micro_batch_size,
        global_batch=batch.global_batch,
        normalised_set=recipe.micro_batch_size * recipe.dbn_replica_group_size
        if subject.normalises
        else None,
        devices=devices,
        links=links,
        host_bytes_per_s=host_bytes_per_s or _HOST_BYTES_PER_S,
        memory_limit=memory_limit,
        usable_share=usable_share,
        update_s=known.update_s,
        least_layer_s=_LEAST_LAYER_S,
        stages=stages,
        replicas=replicas,
        schedules=tuple(name for name in schedules if name not in without),
        shares_cores=shares_cores,
        timed_share=timed_share,
        on_cpu=is_cpu(recipe.device),
        buffer_bytes=recipe.max_cross_replica_buffer_size or DEFAULT_BUFFER_BYTES,
        typed_micro=recipe.micro_batch_size if "micro_batch_size" in typed else None,
        typed_group=recipe.dbn_replica_group_size if "dbn_replica_group_size" in typed else None,
        source=known.source,
        assumes_times=times is None,
        seeds=_seeds(subject, known),
        blocks=_blocks(subject, len(starts)),
    )


def _layers(subject: Subject, times: ModelTimes, starts: set[int]) -> list[Layer]:
    weights, memory = subject.weights, subject.memory
    elements = sum(layer.parameters for layer in subject.shapes.layers) or 1
    own = weights.parameters / (elements + sum(layer.buffers for layer in subject.shapes.layers))
    layers = []
    for place, (cost, time, layer) in enumerate(
        zip(subject.shapes.layers, times.layers, subject.traced.layers, strict=True)
    ):
        share = cost.parameters / elements
        read = {value.name for value in subject.traced.sources(layer.node)} | {layer.node.name}
        gradient = round(weights.gradients * share)
        layers.append(
            Layer(
                name=cost.name,
                forward_s=time.forward_s,
                backward_s=time.backward_s,
                weight_bytes=round(own * (cost.parameters + cost.buffers)),
                gradient_bytes=gradient,
                state_bytes=round(weights.optimiser_states * share),
                # The gradients of what the layer reads and returns, and of its weights before they are added.
                working_bytes=gradient + sum(memory.value_bytes.get(name, 0) for name in read),
                can_start=place in starts,
                normalises=cost.buffers > 0,
            )
        )
    return layers


def _values(subject: Subject) -> list[Value]:
    """The values between layers; what `move_small` would move is made where the value that it reads is."""
    traced, memory = subject.traced, subject.memory
    places = {layer.node: place for place, layer in enumerate(traced.layers)}
    moved = {
        node: next(value for value in traced.sources(node) if value in places)
        for node in places
        if is_movable(traced, node, subject.shapes) and any(value in places for value in traced.sources(node))
    }
    readers: dict[Node, list[int]] = {}
    for node, place in places.items():
        for value in traced.sources(node):
            if value in places and moved.get(node) is not value:
                readers.setdefault(value, []).append(place)
    readers.setdefault(traced.nodes[traced.output], []).append(len(places) - 1)
    return [
        Value(
            name=node.name,
            producer=_home(node, moved, places),
            consumers=tuple(sorted({place for place in found if place > _home(node, moved, places)})),
            size_bytes=memory.value_bytes[node.name],
            has_gradient=node.name in memory.with_gradient,
        )
        for node, found in readers.items()
        if node.name in memory.value_bytes
    ]


def _home(node: Node, moved: Mapping[Node, Node], places: Mapping[Node, int]) -> int:
    while node in moved:
        node = moved[node]
    return places[node]


def _saved(subject: Subject) -> list[Saved]:
    places = {layer.node.name: place for place, layer in enumerate(subject.traced.layers)}
    found = []
    for kept in subject.memory.kept:
        # Steps between layers, such as reading a size, belong to no layer and keep nothing.
        if kept.saver in places:
            saver = places[kept.saver]
            producer = min(places.get(kept.producer, saver), saver)
            found.append(Saved(producer=producer, saver=saver, size_bytes=kept.num_bytes))
    return found


def _seeds(subject: Subject, times: ModelTimes) -> Callable[[int], tuple[tuple[int, ...], ...]]:
    """The cuts of --split-by cost, parameters and time for a number of stages."""
    place_of = {layer.name: place for place, layer in enumerate(subject.traced.layers)}
    forward = [layer.forward_s for layer in times.layers]
    # Times that follow from FLOPs give the cut by cost again.
    ways: tuple[SplitBy, ...] = ("cost", "parameters", "time")
    if times.source == "described":
        ways = ("cost", "parameters")

    @cache
    def seeds(stages: int) -> tuple[tuple[int, ...], ...]:
        chosen = (
            choose_stages(subject.traced, subject.shapes, stages=stages, by=way, seconds=forward)
            for way in ways
        )
        return tuple(tuple(place_of[name] for name in names) for names in chosen)

    return seeds


def _blocks(subject: Subject, splits: int) -> tuple[int, ...]:
    """The blocks of --recomputation without stages."""
    count = max(1, min(isqrt(len(subject.traced.layers)), splits + 1))
    names = choose_stages(subject.traced, subject.shapes, stages=count, by="cost")
    place_of = {layer.name: place for place, layer in enumerate(subject.traced.layers)}
    return tuple(place_of[name] for name in names)
