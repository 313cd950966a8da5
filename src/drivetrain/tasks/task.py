"""What a task is to the rest: a loss and a score per sample, and a way to measure a whole set."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from drivetrain.data.source import DataSplits


@runtime_checkable
class Evaluation(Protocol):
    """What was measured on a set of samples."""

    @property
    def samples(self) -> int: ...

    def as_metrics(self) -> dict[str, float]:
        """The numbers of a validation event."""
        ...

    def of_classes(self) -> dict[str, Any]:
        """What is known of each class, by what a row of `evaluate` calls it."""
        ...


class Measure(Protocol):
    """Adds up what a model does on a set of samples, one batch after the other."""

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """One more batch; nothing is fetched from the device."""
        ...

    def state(self) -> Any:
        """What was added so far, in a form that travels to other processes."""
        ...

    def take(self, states: Sequence[Any]) -> None:
        """Starts again from what several processes added, in their order."""
        ...

    def result(self) -> Evaluation:
        """What all batches so far amount to."""
        ...


class Task(Protocol):
    """Losses and scores of single samples, so that any cut of a batch adds up to the same."""

    @property
    def metric(self) -> str:
        """The name of the score."""
        ...

    def losses_and_scores(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and score of each sample, in float32 or wider; scores carry no gradient."""
        ...

    def probabilities(self, logits: Tensor) -> Tensor:
        """The share of each class."""
        ...

    def check_labels(self, data: DataSplits, *, output: torch.Size) -> None:
        """Refuses data whose labels are why a model's output does not fit them."""
        ...

    def check_output(self, shape: torch.Size, *, batch: int, num_classes: int, size: tuple[int, int]) -> None:
        """Refuses a model whose output this task cannot use; `size` is that of a sample's labels."""
        ...


def at_least_float32(logits: Tensor) -> Tensor:
    """Logits in the precision that losses are computed in."""
    return logits if logits.dtype == torch.float64 else logits.float()
