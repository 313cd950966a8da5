"""Whether a computation draws random numbers from generators that have a state."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch

from drivetrain.devices.device import Device

__all__ = ["Drawn", "draws_of"]


@dataclass(slots=True)
class Drawn:
    """Whose generators were drawn from: the device's, and those of the host, by name."""

    by_device: bool = False
    by_host: str = ""


@contextmanager
def draws_of(device: Device) -> Iterator[Drawn]:
    """What the block drew, known at its end; torch's own generators must have been set inside, and are read
    as they are after that.
    """
    drawn = Drawn()
    before = _host_states()
    yield drawn
    after = _host_states()
    names = [name for name, state in after.items() if state != before[name]]
    drawn.by_host = ", ".join(names + (["torch"] if _has_drawn(torch.default_generator) else []))
    drawn.by_device = not device.is_cpu and _offset(device.torch_device) > 0


def _host_states() -> dict[str, object]:
    legacy = np.random.get_state(legacy=False)
    return {"random": random.getstate(), "numpy.random": repr(legacy)}


def _has_drawn(generator: torch.Generator) -> bool:
    untouched = torch.Generator().manual_seed(generator.initial_seed())
    return not torch.equal(untouched.get_state(), generator.get_state())


def _offset(device: torch.device) -> int:
    module = torch.get_device_module(device)
    generators = getattr(module, "default_generators", ())
    index = device.index or 0
    return int(generators[index].get_offset()) if index < len(generators) else 0
