"""Small problems with random numbers."""

import random
from collections.abc import Sequence

from drivetrain.planner.costs import Link
from drivetrain.planner.devices.links import Links
from drivetrain.planner.search.problem import Layer, Problem, Saved, Value

LINK = Link(bytes_per_s=1e9, latency_s=1e-5)
LINKS = Links(device=LINK, host=LINK, devices_per_host=1, source="default")


def random_problem(
    seed: int, *, layers: int = 8, devices: int = 3, memory_limit: int | None = None, skips: int = 2
) -> Problem:
    """A chain of layers with some skip connections; every layer keeps what it returns."""
    draw = random.Random(seed)
    values = [
        Value(
            name=f"value_{place}",
            producer=place,
            consumers=(place + 1, *sorted(draw.sample(range(place + 2, layers), _some(draw, place, layers)))),
            size_bytes=draw.randint(1, 1000) * 100,
        )
        for place in range(layers - 1)
    ]
    skipping = draw.sample(range(layers - 1), skips)
    kept = [value if value.producer in skipping else _without_skips(value) for value in values]
    return Problem(
        layers=[
            Layer(
                name=f"layer_{place}",
                forward_s=draw.uniform(0.1, 1.0) * 1e-3,
                backward_s=draw.uniform(0.2, 2.0) * 1e-3,
                weight_bytes=draw.randint(1, 1000) * 100,
                gradient_bytes=100,
                state_bytes=200,
                working_bytes=draw.randint(1, 100) * 10,
            )
            for place in range(layers)
        ],
        values=kept,
        saved=[
            Saved(producer=place, saver=place, size_bytes=draw.randint(1, 1000) * 100)
            for place in range(layers)
        ],
        input_bytes=1000,
        micro_batch_size=4,
        global_batch=32,
        normalised_set=4,
        devices=devices,
        links=LINKS,
        memory_limit=memory_limit,
    )


def _some(draw: random.Random, place: int, layers: int) -> int:
    return min(draw.randint(0, 2), max(0, layers - place - 2))


def _without_skips(value: Value) -> Value:
    return Value(
        name=value.name,
        producer=value.producer,
        consumers=value.consumers[:1],
        size_bytes=value.size_bytes,
    )


def chain(seconds: Sequence[float], *, devices: int, size_bytes: int = 0) -> Problem:
    """Layers one after another, whose backward passes take twice as long as their forward passes."""
    return Problem(
        layers=[
            Layer(name=f"layer_{place}", forward_s=each, backward_s=2 * each)
            for place, each in enumerate(seconds)
        ],
        values=[
            Value(name=f"value_{place}", producer=place, consumers=(place + 1,), size_bytes=size_bytes)
            for place in range(len(seconds) - 1)
        ],
        micro_batch_size=1,
        global_batch=8,
        normalised_set=None,
        devices=devices,
        links=LINKS,
    )
