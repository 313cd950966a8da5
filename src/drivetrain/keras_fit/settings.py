"""What a scope asks for, and the layout that follows for one model and one batch size."""

import math
from dataclasses import dataclass
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean

__all__ = ["Layout", "ScopeSettings", "as_count", "micro_batch_of", "schedule_named"]

_SCHEDULES = {
    "grouped": "grouped",
    "interleaved": "1f1b",
    "1f1b": "1f1b",
    "sequential": "sequential",
    "gpipe": "gpipe",
    "zero-bubble": "zero-bubble",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ScopeSettings:
    """The arguments of `scope`; None where the model or a default decides."""

    replicas: int | None = None
    stages: int | None = None
    devices: int | None = None
    gradient_accumulation: int | None = None
    schedule: str | None = None
    steps_per_execution: int | None = None
    device: str = "auto"
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """How the batches of one model are spread: replicas, stages, and micro-batches one after the other."""

    replicas: int = 1
    stages: int = 1
    accumulation: int = 1
    schedule: str = "1f1b"

    @property
    def ranks(self) -> int:
        """The number of processes, one per device."""
        return self.replicas * self.stages

    @property
    def micro_batches(self) -> int:
        """Into how many micro-batches a batch is cut."""
        return self.replicas * self.accumulation

    def in_words(self, batch: int) -> str:
        """The layout as one line for the terminal."""
        parts = [
            _counted(self.replicas, "replica"),
            *([f"{self.stages} stages ({self.schedule})"] if self.stages > 1 else []),
            f"{_counted(self.accumulation, 'micro-batch', 'micro-batches')} of "
            f"{_counted(batch // self.micro_batches, 'sample')}",
        ]
        return f"{' x '.join(parts)} = {_counted(batch, 'sample')} per weight update"


def _counted(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def as_count(name: str, value: Any) -> int | None:
    """A whole number from 1 on, or None."""
    if value is None:
        return None
    if isinstance(value, bool) or not hasattr(value, "__index__") or int(value) < 1:
        raise BadInputError(f"{name}={value!r} must be a whole number from 1 on; {name}=2 works.")
    return int(value)


def schedule_named(value: Any, *, option: str = "schedule") -> str | None:
    """The schedule that a name, or a member of an enumeration with such a name, stands for."""
    if value is None:
        return None
    name = str(getattr(value, "name", value)).lower().replace("_", "-")
    if name not in _SCHEDULES:
        hint = did_you_mean(name, _SCHEDULES)
        raise BadInputError(f"{option}={value!r} is not a known schedule; use one of {_listed()}.{hint}")
    return _SCHEDULES[name]


def _listed() -> str:
    return ", ".join(_SCHEDULES)


def micro_batch_of(layout: Layout, batch: int) -> int:
    """The samples of a micro-batch; refuses a batch that cannot be cut into equal ones."""
    parts = layout.micro_batches
    if batch % parts == 0:
        return batch // parts
    cut = f"{layout.replicas} replicas x {layout.accumulation} accumulated micro-batches"
    below, above = max(parts, batch // parts * parts), math.ceil(batch / parts) * parts
    works = f"batch_size={below}" if below == above else f"batch_size={below} or {above}"
    raise BadInputError(f"batch_size={batch} cannot be cut into {cut}; {works} works.")
