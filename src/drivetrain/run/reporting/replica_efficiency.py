"""How well replicas work together: what each of them waited for, and how much of the time was computing."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from drivetrain.console.figures import rounded_speed, speed_text
from drivetrain.program.training_program import TrainingProgram

__all__ = ["ReplicaTimes", "Scaling", "SumSeconds", "read_sums", "scaling_of"]


class SumSeconds(NamedTuple):
    """Seconds of waiting for the sums of gradients, of batch norm over a group, and of the small vector.

    `stages` is the waiting for values and gradients of other stages. None where the device cannot tell.
    """

    gradient: float | None = 0.0
    batch_norm: float | None = 0.0
    small: float | None = 0.0
    stages: float | None = 0.0

    def added(self, other: "SumSeconds", *, factor: float = 1.0) -> "SumSeconds":
        """Part by part, this and `factor` times the other."""
        pairs = zip(self, other, strict=True)
        return SumSeconds(*(None if a is None or b is None else a + factor * b for a, b in pairs))


def read_sums(program: TrainingProgram) -> SumSeconds:
    """What a program has waited for so far; on an accelerator, only once it was synchronised."""
    layers = program.batch_norms.batch_norms
    return SumSeconds(
        gradient=program.rank_sums.gradient_sum.waits.read(),
        batch_norm=layers[0].group.waits.read() if layers else 0.0,
        small=program.group.waits.read(),
        stages=program.passes.wait_seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaTimes:
    """Seconds of one replica's executions, and of waiting inside them."""

    execution_s: float
    data_s: float
    sums: SumSeconds = field(default_factory=SumSeconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Shares of the executions' time, on average over the replicas; None where sums could not be timed.

    A replica that waits for a sum waits for the slowest one first, and then for the sum itself: what the one
    that waited least had to wait is the sum, the rest is for stragglers.
    """

    replicas: int
    devices: int
    images_per_second: float
    data: float
    stages: float = 0.0
    gradient_sum: float | None = None
    batch_norm_sum: float | None = None
    small_sum: float | None = None
    stragglers: float | None = None

    @property
    def losses(self) -> dict[str, float]:
        """What the time that was not computing went to, as far as it was measured."""
        parts = {
            "data": self.data,
            **({"stages": self.stages} if self.devices > 1 else {}),
            "gradient_sum": self.gradient_sum,
            "batch_norm_sum": self.batch_norm_sum,
            "small_sum": self.small_sum,
            "stragglers": self.stragglers,
        }
        return {name: share for name, share in parts.items() if share is not None}

    @property
    def computing(self) -> float | None:
        """The share of the time in which the replicas computed."""
        return None if self.stragglers is None else max(0.0, 1.0 - sum(self.losses.values()))

    @property
    def main_loss(self) -> str:
        """What took most of the time that was not computing."""
        return max(self.losses, key=lambda name: self.losses[name])

    @property
    def advice(self) -> str | None:
        """What would help most, where replicas mostly wait."""
        is_poor = self.computing is not None and self.computing <= _POOR
        return _ADVICE[self.main_loss] if is_poor else None

    def to_json(self) -> dict[str, Any]:
        """For the summary event."""
        measured: dict[str, Any] = {}
        if self.computing is not None:
            measured["computing_share"] = round(self.computing, 4)
        return {
            "replicas": self.replicas,
            **({"devices_per_replica": self.devices} if self.devices > 1 else {}),
            "images_per_second_per_replica": rounded_speed(self.images_per_second / self.replicas),
            **measured,
            "lost_to": {name: round(share, 4) for name, share in self.losses.items()},
        }

    def sentence(self) -> str:
        """For the person, with the reason where replicas mostly wait."""
        count = f"{self.replicas} replica{'s' if self.replicas > 1 else ''}"
        of = f" on {self.devices} devices{' each' if self.replicas > 1 else ''}" if self.devices > 1 else ""
        all_of_it = f" each, {speed_text(self.images_per_second)} in all" if self.replicas > 1 else ""
        own = speed_text(self.images_per_second / self.replicas)
        speed = f"{count}{of}: {own} images/s{all_of_it}"
        if self.computing is None:
            return f"{speed}; they waited {self.data:.0%} of the time for data, and for sums nobody knows"
        waits = [f"{share:.0%} for {_WORDS[name]}" for name, share in self.losses.items() if share]
        text = f"{speed}; they computed {self.computing:.0%} of the time and waited {', '.join(waits)}"
        return text if self.advice is None else f"{text}: mostly {self.advice}"


_POOR = 0.7
_WORDS = {
    "data": "data",
    "stages": "other stages",
    "gradient_sum": "gradient sums",
    "batch_norm_sum": "batch-norm sums",
    "small_sum": "other sums",
    "stragglers": "stragglers",
}
_ADVICE = {
    "data": "data, where more loader workers or resident data help",
    "stages": "other stages, where a larger --gradient-accumulation-count or a more even cut helps",
    "gradient_sum": "gradient sums, where a larger --global-batch-size or fewer replicas help",
    "batch_norm_sum": "batch-norm sums, where a smaller --dbn-replica-group-size helps",
    "small_sum": "other sums, where a larger --global-batch-size or fewer replicas help",
    "stragglers": "stragglers, where fewer replicas than cores, equal devices, or fewer checkpoints help",
}


def scaling_of(times: Sequence[ReplicaTimes], *, images_per_second: float, devices: int = 1) -> Scaling:
    """What all ranks' times amount to; `devices` is how many of them make up a replica."""
    data = sum(time.data_s / time.execution_s for time in times) / len(times)
    stages = sum((time.sums.stages or 0.0) / time.execution_s for time in times) / len(times)
    scaling = Scaling(
        replicas=len(times) // devices,
        devices=devices,
        images_per_second=images_per_second,
        data=data,
        stages=stages,
    )
    waited = [_shares(time) for time in times]
    if any(shares is None for shares in waited):
        return scaling
    known = [shares for shares in waited if shares is not None]
    least = min(known, key=sum)
    return replace(
        scaling,
        gradient_sum=least[0],
        batch_norm_sum=least[1],
        small_sum=least[2],
        stragglers=sum(map(sum, known)) / len(known) - sum(least),
    )


def _shares(time: ReplicaTimes) -> list[float] | None:
    """Each kind of sum as a share of the executions."""
    sums = (time.sums.gradient, time.sums.batch_norm, time.sums.small)
    shares = [part / time.execution_s for part in sums if part is not None]
    return shares if len(shares) == len(sums) else None
