"""The soft Dice from its sums."""

import torch

from drivetrain.tasks.segmentation_loss import soft_dice


def dice_of(probabilities: list[float], truth: list[float]) -> float:
    p, t = torch.tensor([[probabilities], [truth]], dtype=torch.float64)
    sums = [values.sum(1, keepdim=True) for values in (p * t, p * p, t)]
    return soft_dice(shared=sums[0], squares=sums[1], pixels=sums[2]).item()


def test_worked_examples() -> None:
    # (2 x (0.9 + 0.6) + e) / (0.81 + 0.36 + 0.04 + 2 + e)
    assert abs(dice_of([0.9, 0.6, 0.2], [1, 1, 0]) - 3.000001 / 3.210001) < 1e-15
    assert dice_of([1, 1, 0], [1, 1, 0]) == 1
    assert dice_of([0, 0, 1], [1, 1, 0]) < 1e-6
    # Nothing there and nothing said is right; a class that is only guessed at is wrong.
    assert dice_of([0, 0, 0], [0, 0, 0]) == 1
    assert dice_of([0.5, 0.5, 0.5], [0, 0, 0]) < 1e-5
