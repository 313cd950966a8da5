"""How often something is measured; nothing here needs torch."""

from dataclasses import dataclass

from drivetrain.core.errors import BadInputError

__all__ = ["Repetition"]

_MOST_STEPS = 1_000_000


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
