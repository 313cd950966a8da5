"""Builds a library's model for the shape of the data."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from drivetrain.catalogue.tasks import DEFAULT_TASK, TaskName
from drivetrain.core.randomness import stream_key
from drivetrain.models.libraries.library import library_for

__all__ = ["build_library_model"]


def build_library_model(
    name: str,
    *,
    shape: Mapping[str, int],
    task: TaskName | None,
    params: Mapping[str, Any],
    seed: int,
) -> nn.Module:
    """The model `name` (with its library's prefix); its weights are a function of the seed.

    What `shape` lacks of `channels`, `image_size` and `num_classes` is the library's.
    """
    # Not only the building draws random numbers: an import may too, but only the first time.
    with torch.random.fork_rng(devices=[]):
        library, own_name = library_for(name)
        facts = library.facts(own_name, params=params)
        torch.default_generator.manual_seed(stream_key(seed, "init"))
        return library.build(
            own_name,
            channels=shape.get("channels", facts.channels),
            image_size=shape.get("image_size", facts.image_size),
            num_classes=shape.get("num_classes", facts.num_classes),
            task=facts.task or task or DEFAULT_TASK,
            params=params,
        )
