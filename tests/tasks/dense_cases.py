"""Segmentation losses and scores from their definitions, in float64 and plain loops."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Values = NDArray[np.float64]


def random_case(
    samples: int = 3, classes: int = 2, *, size: tuple[int, int] = (7, 6), codes: bool = False
) -> tuple[Tensor, Tensor]:
    """Logits in double precision, channels last, and labels; the last sample lacks the last class."""
    generator = torch.Generator().manual_seed(samples * 10 + classes)
    logits = 2 * torch.randn(samples, classes, *size, generator=generator, dtype=torch.float64)
    labels = torch.randint(0, classes, (samples, *size, 1), generator=generator, dtype=torch.uint8)
    labels[-1].clamp_(max=classes - 2)
    if codes:
        more = torch.randint(0, 256, labels.shape, generator=generator, dtype=torch.uint8)
        labels = torch.cat([labels, more], dim=-1)
    return logits.to(memory_format=torch.channels_last), labels


def softmax_by_hand(logits: Values) -> Values:
    shifted = np.exp(logits - logits.max(axis=0))
    return np.asarray(shifted / shifted.sum(axis=0))


def dice_by_hand(logits: Values, classes: NDArray[np.uint8], *, squared: bool = True) -> Values:
    """Soft Dice of each class of one sample, with squared or plain denominators."""
    probabilities = softmax_by_hand(logits)
    power = 2 if squared else 1
    scores = []
    for number, p in enumerate(probabilities):
        t = (classes == number).astype(np.float64)
        scores.append((2 * (p * t).sum() + 1e-6) / ((p**power).sum() + (t**power).sum() + 1e-6))
    return np.array(scores)


def cross_entropy_by_hand(logits: Values, classes: NDArray[np.uint8], *, sigmoid: bool) -> Values:
    """The cost of every pixel of one sample."""
    num_classes = len(logits)
    costs = np.empty(classes.shape)
    for row, column in np.ndindex(*classes.shape):
        values, right = logits[:, row, column], int(classes[row, column])
        if sigmoid:
            yes = 1 / (1 + np.exp(-values))
            target = np.eye(num_classes)[right]
            costs[row, column] = -(target * np.log(yes) + (1 - target) * np.log(1 - yes)).mean()
        else:
            costs[row, column] = -np.log(np.exp(values[right]) / np.exp(values).sum())
    return costs
