"""Random draws belong to their place in the model: no cut of a model or of a batch changes them."""

import random
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch import nn

from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.pipeline.cutting.stage_plan import plan_stages
from tests.layers.draws.drawing_models import BY_MICRO_BATCH, BY_SAMPLE, CHECKPOINTED
from tests.pipeline.staged import RECIPE, Outcome, Subject
from tests.program.harness import worst_error

SHAPE = (3, 6, 6)
SAMPLES, MICRO = 8, 2
TOLERANCE = 1e-12
CUTS: dict[str, dict[str, Any]] = {
    "two stages": {"stages": 2},
    "three stages": {"stages": 3},
    "blocks": {"recomputation": True},
}
DRAWING = (*BY_SAMPLE, *BY_MICRO_BATCH)


def _batch() -> MicroBatch:
    images = torch.randn(
        SAMPLES, *SHAPE, generator=torch.Generator().manual_seed(1), dtype=torch.float64
    ).contiguous(memory_format=torch.channels_last)
    return MicroBatch(images, torch.arange(SAMPLES) % 5, None, torch.arange(SAMPLES))


def _made(kind: Callable[[], nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    return kind().double()


def _plain(kind: Callable[[], nn.Module], *, micro: int = MICRO) -> Outcome:
    return Subject(_made(kind), _batch(), micro=micro).plain()


@pytest.mark.parametrize("kind", DRAWING)
@pytest.mark.parametrize("cut", CUTS)
def test_a_cut_model_draws_the_same(kind: type[nn.Module], cut: str) -> None:
    model = _made(kind)
    recipe = RECIPE.model_copy(update=CUTS[cut])
    plan = plan_stages(recipe, model, image_shape=SHAPE, micro=MICRO, accumulation=SAMPLES // MICRO)
    assert plan is not None
    found = Subject(model, _batch(), plans=[plan], micro=MICRO).staged(plan)
    assert worst_error(_plain(kind).gradients, found.gradients) <= TOLERANCE


@pytest.mark.parametrize("kind", BY_SAMPLE)
def test_draws_of_a_sample_do_not_depend_on_the_micro_batch(kind: type[nn.Module]) -> None:
    expected = _plain(kind)
    for micro in (1, 4, 8):
        assert worst_error(expected.gradients, _plain(kind, micro=micro).gradients) <= TOLERANCE


@pytest.mark.parametrize("kind", BY_MICRO_BATCH)
def test_draws_from_generators_depend_on_the_micro_batch_and_nothing_else(kind: type[nn.Module]) -> None:
    expected = _plain(kind)
    torch.rand(3), random.random(), np.random.rand()
    assert worst_error(expected.gradients, _plain(kind).gradients) == 0
    # The control: these draws do belong to the micro-batch.
    assert worst_error(expected.gradients, _plain(kind, micro=4).gradients) > 1e-3


@pytest.mark.parametrize("kind", DRAWING)
def test_generators_are_put_back(kind: type[nn.Module]) -> None:
    subject = Subject(_made(kind), _batch(), micro=MICRO)
    before = random.getstate(), repr(np.random.get_state(legacy=False))
    subject.plain()
    assert before == (random.getstate(), repr(np.random.get_state(legacy=False)))


@pytest.mark.parametrize("kind", DRAWING)
def test_every_model_here_really_draws(kind: type[nn.Module]) -> None:
    subject = Subject(_made(kind), _batch(), micro=MICRO)
    begin = subject.context.begin_forward
    if kind in BY_SAMPLE:
        shifted = mock.Mock(side_effect=lambda slots, **key: begin(slots + 100, **key))
        subject.context.begin_forward = shifted  # type: ignore[method-assign]
        assert worst_error(_plain(kind).gradients, subject.plain().gradients) > 1e-3
    else:
        assert subject.draws.facts.by_micro_batch


@pytest.mark.parametrize("kind", CHECKPOINTED)
def test_a_checkpointed_region_draws_the_same_when_it_runs_again(kind: type[nn.Module]) -> None:
    expected = _plain(lambda: kind(checkpoints=False))
    found = _plain(kind)
    assert worst_error(expected.gradients, found.gradients) <= TOLERANCE
    assert found.reports == expected.reports
    assert all(np.array_equal(value, found.statistics[name]) for name, value in expected.statistics.items())
