"""How often something is measured, and where repeats disagree; nothing here needs torch."""

from collections.abc import Sequence
from dataclasses import dataclass

from drivetrain.bench.result import Entry
from drivetrain.core.errors import BadInputError

__all__ = ["Repetition", "spread_notes"]

_MOST_STEPS = 1_000_000
_MOST_TIMES = 1.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """`warmup_steps` that do not count, then `repeats` times `steps`, of which the median counts."""

    warmup_steps: int
    steps: int
    repeats: int

    def __post_init__(self) -> None:
        for option, value, least in (
            ("--warmup-steps", self.warmup_steps, 0),
            ("--steps", self.steps, 1),
            ("--repeats", self.repeats, 1),
        ):
            if value < least:
                raise BadInputError(f"{option} {value} must be at least {least}; {option} 3 works.")
        if self.total > _MOST_STEPS:
            raise BadInputError(
                f"--steps {self.steps} with --repeats {self.repeats} makes {self.total} steps, more than "
                f"{_MOST_STEPS}; --steps 100 works."
            )

    @property
    def total(self) -> int:
        """All steps, those of the warm-up included."""
        return self.warmup_steps + self.repeats * self.steps


# Says where the repeats of a measurement disagree; nothing here needs torch.


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
            "the first one had no warm-up (--warmup-steps 3 gives it one)"
            if is_cold
            else "something else uses the machine, or a repeat is too short (--steps)"
        )
        notes.append(f"the repeats of {entry.name} differ by {times:.1f} times: {cause}")
    return notes
