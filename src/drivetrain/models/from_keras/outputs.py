"""Makes the probabilities that a Keras model returns into logits, as the losses of Drivetrain take them.

The logarithm of probabilities is a set of logits: its softmax gives the probabilities back, and its
cross-entropy is what Keras computes from probabilities, clipped as Keras clips them.
"""

import torch
from torch import Tensor, nn

__all__ = ["BinaryLogProbabilities", "LogProbabilities", "logits_module"]


class LogProbabilities(nn.Module):
    """The logarithm of probabilities, which add up to 1 over the second dimension after a division."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon

    def forward(self, probabilities: Tensor) -> Tensor:
        wide = _at_least_float32(probabilities)
        shares = wide / wide.sum(1, keepdim=True)
        return shares.clamp(self.epsilon, 1 - self.epsilon).log()


class BinaryLogProbabilities(nn.Module):
    """The logarithms of 1 - p and of p: two classes of a model that returns the probability of one."""

    def __init__(self, epsilon: float) -> None:
        super().__init__()
        self.epsilon = epsilon

    def forward(self, probabilities: Tensor) -> Tensor:
        clipped = _at_least_float32(probabilities).clamp(self.epsilon, 1 - self.epsilon)
        return torch.cat([torch.log1p(-clipped), clipped.log()], dim=1)


def _at_least_float32(values: Tensor) -> Tensor:
    return values if values.dtype == torch.float64 else values.float()


def logits_module(last: nn.Module | None, *, outputs: int | None, epsilon: float) -> nn.Module | None:
    """What makes logits of what `last` returns for `outputs` channels; None if they are logits already."""
    if isinstance(last, nn.Sigmoid) and outputs == 1:
        return BinaryLogProbabilities(epsilon)
    return LogProbabilities(epsilon) if isinstance(last, nn.Softmax | nn.Sigmoid) else None
