"""Training in either memory format, in every layout."""

import dataclasses
from typing import Any

import pytest
import torch

from drivetrain.models.memory_format import memory_format_of
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.replica_group import ALONE
from drivetrain.recipe.layout import rank_count
from drivetrain.recipe.schema import Recipe
from tests.assembly.layout_programs import Found, LayoutJob, build, first_update
from tests.models.layout_models import (
    NEEDS_DEFAULT,
    PlainNet,
    RowsFirst,
    StandardisedNet,
    ViewInBackward,
    ViewNet,
)

# A cut where a value lies between two layers that look at its strides.
STAGES: dict[str, Any] = {"pipeline_splits": ["second"]}
LAYOUTS: dict[str, dict[str, Any]] = {
    "stages": STAGES,
    "recomputation": {"recomputation": True},
    "recomputed stages": {**STAGES, "recomputation": True},
    "zero bubble": {**STAGES, "pipeline_schedule": "zero-bubble"},
}


def _same(one: Found, other: Found) -> bool:
    assert one.gradients.keys() == other.gradients.keys()
    equal = [value.tobytes() == other.gradients[name].tobytes() for name, value in one.gradients.items()]
    return all(equal) and (one.loss, one.measured) == (other.loss, other.measured)


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", NEEDS_DEFAULT, ids=lambda kind: kind.__name__)
def test_an_update_of_a_cut_model_is_that_of_the_whole(
    kind: type[PlainNet], layout: str, channels: int
) -> None:
    whole = LayoutJob(kind=kind, channels=channels)
    expected = first_update(ALONE, whole)
    assert any("default memory format" in warning for warning in expected.warnings)
    found = first_update(ALONE, dataclasses.replace(whole, options=LAYOUTS[layout]))
    assert _same(expected, found)
    assert not _same(expected, first_update(ALONE, dataclasses.replace(whole, factor=1.001)))


@pytest.mark.parametrize(
    ("kind", "memory_format"),
    [
        (ViewNet, "auto"),
        (StandardisedNet, "auto"),
        (ViewInBackward, "auto"),
        (PlainNet, "channels_last"),
        (PlainNet, "contiguous"),
        (RowsFirst, "channels_last"),
    ],
)
def test_an_update_over_ranks_is_that_of_the_whole(
    rank_pool: RankPool, kind: type[PlainNet], memory_format: str
) -> None:
    options = {"memory_format": memory_format}
    stages = {"pipeline_splits": ["gate"]} if kind is RowsFirst else STAGES
    whole = LayoutJob(kind=kind, channels=3, options=options)
    cut = LayoutJob(kind=kind, channels=3, options={**options, **stages})
    expected = first_update(ALONE, whole)
    assert rank_count(Recipe(model="my_models:Net", **cut.options)) == 2
    parts: list[Found] = rank_pool.run(first_update, cut, ranks=2)
    merged = {name: value for part in parts for name, value in part.gradients.items()}
    assert _same(expected, dataclasses.replace(parts[0], gradients=merged))


@pytest.mark.parametrize("memory_format", ["channels_last", "contiguous"])
def test_weights_and_gradients_have_the_format_that_is_asked_for(memory_format: str) -> None:
    program = build(ALONE, LayoutJob(kind=PlainNet, options={"memory_format": memory_format})).program
    wanted = getattr(torch, memory_format if memory_format == "channels_last" else "contiguous_format")
    assert memory_format_of(program.model) == wanted
    weight = program.model.get_parameter("second.weight")
    assert weight.grad is not None
    for tensor in (weight, weight.grad):
        assert tensor.stride() == torch.empty(16, 6, 3, 3, memory_format=wanted).stride()
