"""How well replicas work together: what each of them waited for, and how much of the time was computing."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaTimes:
    """Seconds of one replica's executions, and of waiting inside them."""

    execution_s: float
    data_s: float
    sum_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Shares of the executions' time, on average over the replicas.

    A replica that waits for the sum of gradients waits for the slowest one first, and then for the sum
    itself: what the one that waited least had to wait is the sum, the rest is for stragglers.
    """

    replicas: int
    images_per_second: float
    data: float
    gradient_sum: float
    stragglers: float

    @property
    def efficiency(self) -> float:
        """The share of the time in which the replicas computed."""
        return max(0.0, 1.0 - self.data - self.gradient_sum - self.stragglers)

    @property
    def main_loss(self) -> str:
        """What took most of the time that was not computing."""
        losses = {"data": self.data, "gradient sums": self.gradient_sum, "stragglers": self.stragglers}
        return max(losses, key=lambda name: losses[name])

    def to_json(self) -> dict[str, Any]:
        """For the summary event."""
        return {
            "replicas": self.replicas,
            "images_per_second_per_replica": round(self.images_per_second / self.replicas, 1),
            "scaling_efficiency": round(self.efficiency, 4),
            "lost_to": {
                "data": round(self.data, 4),
                "gradient_sum": round(self.gradient_sum, 4),
                "stragglers": round(self.stragglers, 4),
            },
        }

    def sentence(self) -> str:
        """For the person, with the reason where replicas mostly wait."""
        text = (
            f"{self.replicas} replicas: {self.images_per_second / self.replicas:.0f} images/s each, "
            f"{self.images_per_second:.0f} in all; they computed {self.efficiency:.0%} of the time, waited "
            f"{self.gradient_sum:.0%} for gradient sums, {self.stragglers:.0%} for stragglers, "
            f"{self.data:.0%} for data"
        )
        return text if self.efficiency > _POOR else f"{text}: mostly {_ADVICE[self.main_loss]}"


_POOR = 0.7
_ADVICE = {
    "data": "data, where more loader workers or resident data help",
    "gradient sums": "gradient sums, where a larger --global-batch-size or fewer replicas help",
    "stragglers": "stragglers, where fewer replicas than cores, or equal devices, help",
}


def scaling_of(times: Sequence[ReplicaTimes], *, images_per_second: float) -> Scaling:
    """What all replicas' times amount to."""
    shares = [(time.data_s / time.execution_s, time.sum_s / time.execution_s) for time in times]
    waited = [sums for _, sums in shares]
    return Scaling(
        replicas=len(times),
        images_per_second=images_per_second,
        data=sum(data for data, _ in shares) / len(shares),
        gradient_sum=min(waited),
        stragglers=sum(waited) / len(waited) - min(waited),
    )
