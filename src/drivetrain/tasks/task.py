"""The interface of a task: a loss and a score per sample, and metrics over a set of samples."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from drivetrain.data.source import DataSplits


@runtime_checkable
class Evaluation(Protocol):
    """The metrics over a set of samples."""

    @property
    def samples(self) -> int: ...

    def as_metrics(self) -> dict[str, float]:
        """The numbers of a validation event."""
        ...

    def of_classes(self) -> dict[str, Any]:
        """The metrics by class, under their keys in the rows of `evaluate`."""
        ...


class Measure(Protocol):
    """Accumulates the metrics of a model over a set of samples, batch by batch."""

    def add(self, logits: Tensor, labels: Tensor) -> None:
        """Adds a batch; should not synchronize with the device."""
        ...

    def state(self) -> Any:
        """What was accumulated so far, in a form that can be sent to other processes."""
        ...

    def take(self, states: Sequence[Any]) -> None:
        """Replaces the state by those of several processes, in rank order."""
        ...

    def result(self) -> Evaluation:
        """The metrics of all batches so far."""
        ...


class Task(Protocol):
    """Losses and scores per sample, so that the sum is the same however a batch is split."""

    @property
    def metric(self) -> str:
        """The name of the score."""
        ...

    def losses_and_scores(self, logits: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Loss and score of each sample, in float32 or wider; scores have no gradient."""
        ...

    def probabilities(self, logits: Tensor) -> Tensor:
        """The probability of each class."""
        ...

    def check_labels(self, data: DataSplits, *, output: torch.Size) -> None:
        """Raises if the labels are the reason why the model's output does not fit."""
        ...

    def check_output(self, shape: torch.Size, *, batch: int, num_classes: int, size: tuple[int, int]) -> None:
        """Raises if the task cannot use the model's output; `size` is the size of a sample's labels."""
        ...


def at_least_float32(logits: Tensor) -> Tensor:
    """Logits in float64 if they are already, else in float32: losses are not computed in 16 bits."""
    return logits if logits.dtype == torch.float64 else logits.float()
