"""Generators that a model may draw from: torch's, numpy's and Python's own, and those kept by a module."""

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn

from drivetrain.devices.device import Device

__all__ = [
    "has_own_generators",
    "host_states",
    "kept_host_generators",
    "seeded",
    "seeded_own",
    "seeded_torch",
]

_NUMPY_SEEDS = 1 << 32


@contextmanager
def seeded_torch(key: int, *, device: Device) -> Iterator[None]:
    """torch's default generators, seeded for the block and put back afterwards."""
    before = torch.get_rng_state()
    module = None if device.is_cpu else torch.get_device_module(device.torch_device)
    of_device = None if module is None else module.get_rng_state(device.torch_device)
    device.seed_generators(key)
    try:
        yield
    finally:
        torch.set_rng_state(before)
        if module is not None:
            module.set_rng_state(of_device, device.torch_device)


@contextmanager
def seeded(key: int, *, device: Device, owner: nn.Module) -> Iterator[None]:
    """All generators of the process, and those that `owner` keeps, seeded for the block and put back."""
    with ExitStack() as stack:
        stack.enter_context(seeded_torch(key, device=device))
        stack.enter_context(_seeded_python(random, key))
        stack.enter_context(_seeded_numpy(np.random, key))
        for kept in vars(owner).values():
            stack.enter_context(seeded_own(kept, key))
        yield


@contextmanager
def _seeded_python(source: Any, key: int) -> Iterator[None]:
    before = source.getstate()
    source.seed(key)
    try:
        yield
    finally:
        source.setstate(before)


@contextmanager
def _seeded_numpy(source: Any, key: int) -> Iterator[None]:
    before = source.get_state(legacy=False)
    source.seed(key % _NUMPY_SEEDS)
    try:
        yield
    finally:
        source.set_state(before)


@contextmanager
def seeded_own(kept: Any, key: int) -> Iterator[None]:
    """A generator of a model's own, seeded for the block and put back; anything else is left alone."""
    if isinstance(kept, random.Random):
        with _seeded_python(kept, key):
            yield
    elif isinstance(kept, torch.Generator):
        before = kept.get_state()
        kept.manual_seed(key)
        try:
            yield
        finally:
            kept.set_state(before)
    elif isinstance(kept, np.random.Generator):
        bits = kept.bit_generator
        state = bits.state
        bits.state = type(bits)(key).state
        try:
            yield
        finally:
            bits.state = state
    elif isinstance(kept, np.random.RandomState):
        with _seeded_numpy(kept, key):
            yield
    else:
        yield


def has_own_generators(module: nn.Module) -> bool:
    """Whether a module keeps generators among its attributes."""
    kinds = (random.Random, torch.Generator, np.random.Generator, np.random.RandomState)
    return any(isinstance(kept, kinds) for kept in vars(module).values())


@contextmanager
def kept_host_generators() -> Iterator[None]:
    """Python's and numpy's generators are put back after the block."""
    python, numpy = random.getstate(), np.random.get_state(legacy=False)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def host_states() -> tuple[object, ...]:
    """The states of Python's and numpy's generators, in a form that can be compared."""
    kind, words, *rest = np.random.get_state()
    return random.getstate(), kind, np.asarray(words).tobytes(), *rest
