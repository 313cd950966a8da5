"""How often something is measured, and notes on repeats that disagree. Imports no torch."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from drivetrain.bench.result import Entry, plain_number
from drivetrain.core.errors import BadInputError

__all__ = ["Repetition", "spread_notes"]

# A guard against typing errors: the time of each step is kept in memory.
_MOST_STEPS = 1_000_000
# A larger ratio between the fastest and the slowest repeat gets a note.
_MOST_TIMES = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """`warmup_steps` that are not counted, then `repeats` times `steps`; the median of the repeats counts.

    With `most_s`, a repeat ends with the step that is running after so many seconds.
    """

    warmup_steps: int
    steps: int
    repeats: int
    most_s: float | None = None

    def __post_init__(self) -> None:
        for option, value, least in (
            ("--warmup-steps", self.warmup_steps, 0),
            ("--steps", self.steps, 1),
            ("--repeats", self.repeats, 1),
        ):
            if value < least:
                raise BadInputError(f"{option} {value} must be at least {least}; {option} 3 works.")
        if self.most_s is not None and not 0 < self.most_s < math.inf:
            raise BadInputError(
                f"--seconds {plain_number(self.most_s)} must be a number above 0; --seconds 1 works."
            )
        if self.total > _MOST_STEPS:
            raise BadInputError(
                f"--steps {self.steps} with --repeats {self.repeats} makes {self.total} steps in all, more "
                f"than the limit of {_MOST_STEPS}; --steps 100 works."
            )

    @property
    def total(self) -> int:
        """The number of all steps, including the warm-up."""
        return self.warmup_steps + self.repeats * self.steps

    @property
    def limit(self) -> dict[str, float]:
        """The longest time of a repeat, for the settings of a result; empty without one."""
        return {} if self.most_s is None else {"seconds": self.most_s}


def spread_notes(entries: Sequence[Entry], repetition: Repetition) -> list[str]:
    """A sentence for each entry whose slowest repeat took much longer than its fastest."""
    notes = []
    for entry in entries:
        speeds = [float(repeat["images_per_second"]) for repeat in entry.repeats]
        if not speeds or max(speeds) <= _MOST_TIMES * min(speeds):
            continue
        times = max(speeds) / min(speeds)
        is_cold = repetition.warmup_steps == 0 and speeds[0] == min(speeds)
        cause = (
            "the first repeat had no warm-up (--warmup-steps 3 adds one)"
            if is_cold
            else "another program uses the machine, or the repeats are too short (increase --steps)"
        )
        notes.append(f"the repeats of {entry.name} differ by a factor of {times:.1f}: {cause}")
    return notes
