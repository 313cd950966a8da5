"""How long the passes of each stage take: in seconds or, where no device is known, in proportion to FLOPs."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from drivetrain.schedules.simulator import backward_costs

__all__ = ["PassTimes", "TimeUnit", "times_by_flops"]

TimeUnit = Literal["s", "forward passes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PassTimes:
    """The time of a micro-batch in each stage, and of what an update does besides (`update`).

    Messages between devices take no time unless `bytes_per_s` or `latency_s` is given. The unit "forward
    passes" is the forward pass of one micro-batch through all stages. `source` says in a few words where the
    times are from.
    """

    forward: tuple[float, ...]
    backward: tuple[float, ...]
    update: float
    unit: TimeUnit
    source: str
    bytes_per_s: float | None = None
    latency_s: float = 0.0

    def in_seconds(self, passes_s: float) -> "PassTimes":
        """Relative times, scaled such that all passes of a micro-batch take `passes_s` together."""
        scale = passes_s / (sum(self.forward) + sum(self.backward))
        return replace(
            self,
            forward=tuple(scale * each for each in self.forward),
            backward=tuple(scale * each for each in self.backward),
            update=scale * self.update,
            unit="s",
            source=f"{self.source}, scaled to the measured passes",
        )


def times_by_flops(flops: Sequence[int], *, recomputes: Sequence[bool]) -> PassTimes:
    """Times in proportion to the FLOPs of each stage's forward pass; see `COST_RULE`."""
    costs = [max(each, 1) for each in flops]
    whole = sum(costs)
    return PassTimes(
        forward=tuple(cost / whole for cost in costs),
        backward=tuple(cost / whole for cost in backward_costs(costs, recomputes=recomputes)),
        update=0.0,
        unit="forward passes",
        source="by FLOPs",
    )
