"""Each network takes two updates, and in two stages computes exactly what it computes in one piece."""

import numpy as np
import pytest
import torch

from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.models.create import create_model
from drivetrain.pipeline.cutting.stage_plan import StagePlan, plan_stages
from drivetrain.recipe.schema import Recipe
from tests.models.zoo.known_counts import LIGHT_TOTALS
from tests.pipeline.staged import Outcome, Subject

SIDE, MICRO, MICRO_BATCHES = 32, 2, 2
RATE = 1e-4


def batch() -> MicroBatch:
    generator = torch.Generator().manual_seed(1)
    samples = MICRO * MICRO_BATCHES
    images = torch.randn((samples, 3, SIDE, SIDE), generator=generator)
    images = images.contiguous(memory_format=torch.channels_last)
    labels = torch.randint(0, 10, (samples,), generator=generator)
    return MicroBatch(images, labels, None, torch.arange(samples))


def plan_of(model: torch.nn.Module) -> StagePlan:
    """A cut within a block, so that a shortcut or what was concatenated crosses it too."""
    names = [name for name, _ in model.named_children()]
    split = names[len(names) * 2 // 3]
    recipe = Recipe(dataset="digits", precision="32.32", pipeline_splits=(split,))
    plan = plan_stages(recipe, model, image_shape=(3, SIDE, SIDE), micro=MICRO, accumulation=MICRO_BATCHES)
    assert plan is not None
    return plan


def is_same(first: Outcome, second: Outcome) -> bool:
    return first.loss == second.loss and all(
        np.array_equal(values, other[name])
        for ours, other in ((first.gradients, second.gradients), (first.statistics, second.statistics))
        for name, values in ours.items()
    )


@pytest.mark.parametrize("name", LIGHT_TOTALS)
def test_two_updates_whole_and_in_two_stages(name: str) -> None:
    model = create_model(name, num_classes=10)
    subject = Subject(model, batch(), plans=(plan_of(model),), micro=MICRO)
    first = subject.plain()
    staged = subject.staged(subject.plans[0])
    assert is_same(first, staged)
    with torch.no_grad():
        for parameter, gradient in zip(model.parameters(), first.gradients.values(), strict=True):
            parameter.sub_(RATE * torch.from_numpy(gradient).to(parameter.dtype))
    second = subject.plain()
    assert np.isfinite(second.loss)
    assert not is_same(first, second)
