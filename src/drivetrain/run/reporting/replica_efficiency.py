"""How well ranks scale: which share of the update time they computed, and what they waited for otherwise."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from drivetrain.console.figures import rounded_speed, speed_text
from drivetrain.program.training_program import TrainingProgram

__all__ = ["ReplicaTimes", "Scaling", "SumSeconds", "read_sums", "scaling_of"]


class SumSeconds(NamedTuple):
    """Seconds that one rank waited for all-reduces, by kind; None if the device cannot time them.

    `gradient`: all-reduces of gradients. `batch_norm`: all-reduces inside the forward and backward passes of
    batch norms that normalise over a group of replicas. `small`: one all-reduce per update of loss, score,
    stop votes and batch-norm statistics. `stages`: waiting for activations and gradients of other stages.
    """

    gradient: float | None = 0.0
    batch_norm: float | None = 0.0
    small: float | None = 0.0
    stages: float | None = 0.0

    def added(self, other: "SumSeconds", *, factor: float = 1.0) -> "SumSeconds":
        """This plus `factor` times the other, part by part."""
        pairs = zip(self, other, strict=True)
        return SumSeconds(*(None if a is None or b is None else a + factor * b for a, b in pairs))


def read_sums(program: TrainingProgram) -> SumSeconds:
    """What a program has waited for so far; on an accelerator, synchronise the device first."""
    layers = program.batch_norms.batch_norms
    return SumSeconds(
        gradient=program.rank_sums.gradient_sum.waits.read(),
        batch_norm=layers[0].group.waits.read() if layers else 0.0,
        small=program.group.waits.read(),
        stages=program.passes.wait_seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaTimes:
    """Seconds that one rank spent in executions (updates between two host events), and waiting in them."""

    execution_s: float
    data_s: float
    sums: SumSeconds = field(default_factory=SumSeconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scaling:
    """Shares of the update time, averaged over the ranks; None if all-reduces could not be timed.

    A rank in an all-reduce first waits for the slowest rank and then for the all-reduce itself. The rank that
    waited least is taken as the slowest one: its wait is the cost of the all-reduce, and what the others
    waited beyond it counts as waiting for stragglers.
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
        """Shares of the time spent waiting, by cause, as far as they were measured."""
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
        """The cause of most waiting."""
        return max(self.losses, key=lambda name: self.losses[name])

    @property
    def advice(self) -> str | None:
        """What ranks mostly wait for and what helps; None if they mostly compute."""
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

    def sentence(self, *, unit: str = "images") -> str:
        """The line of the final summary, with advice if ranks waited much."""
        count = f"{self.replicas} replica{'s' if self.replicas > 1 else ''}"
        of = f" on {self.devices} devices{' each' if self.replicas > 1 else ''}" if self.devices > 1 else ""
        all_of_it = f" each, {speed_text(self.images_per_second)} in total" if self.replicas > 1 else ""
        own = speed_text(self.images_per_second / self.replicas)
        speed = f"{count}{of}: {own} {unit}/s{all_of_it}"
        if self.computing is None:
            return (
                f"{speed}; {self.data:.0%} of the time was spent waiting for data; this device cannot time "
                "all-reduces"
            )
        waits = ", ".join(f"{share:.0%} for {_WORDS[name]}" for name, share in self.losses.items() if share)
        text = f"{speed}; {self.computing:.0%} of the time was spent computing"
        text += f", the rest waiting: {waits}" if waits else ""
        return text if self.advice is None else f"{text}. Ranks mostly wait for {self.advice}"


# Below this share of computing, the summary gives advice (docs/replicas.md).
_POOR = 0.7
_WORDS = {
    "data": "data",
    "stages": "other pipeline stages",
    "gradient_sum": "gradient all-reduces",
    "batch_norm_sum": "all-reduces inside batch norm (--dbn-replica-group-size)",
    "small_sum": "small all-reduces (loss, score, batch-norm statistics)",
    "stragglers": "slower ranks",
}
_ADVICE = {
    "data": "data; a larger --num-workers or --data-placement resident helps",
    "stages": "other pipeline stages; a larger --gradient-accumulation-count or more even stages help",
    "gradient_sum": "gradient all-reduces; a larger --global-batch-size or fewer replicas help",
    "batch_norm_sum": "all-reduces inside batch norm; a smaller --dbn-replica-group-size helps",
    "small_sum": "small all-reduces (loss, score, batch-norm statistics); a larger --global-batch-size or "
    "fewer replicas help",
    "stragglers": "slower ranks; fewer replicas than cores, equal devices or fewer checkpoints help",
}


def scaling_of(times: Sequence[ReplicaTimes], *, images_per_second: float, devices: int = 1) -> Scaling:
    """Combines the times of all ranks; `devices` is the number of ranks per replica."""
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
    """Each kind of all-reduce as a share of the execution time; None if one could not be timed."""
    sums = (time.sums.gradient, time.sums.batch_norm, time.sums.small)
    shares = [part / time.execution_s for part in sums if part is not None]
    return shares if len(shares) == len(sums) else None
