"""What `--stage-options` takes: YAML words, a list of mappings, numbered or in order."""

from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.load import resolve_recipe


def _options(*given: Any, stages: int = 2) -> tuple[dict[str, Any], ...]:
    overrides = {"dataset": "digits", "stages": stages, "stage_options": list(given)}
    return resolve_recipe(overrides=overrides).recipe.stage_options


@pytest.mark.parametrize(
    "given",
    [
        ["{stage: 1, recomputation: true}", "{stage: 0, precision: 32.32}"],
        ["[{precision: '32.32'}, {recomputation: true}]"],
        [{"precision": "32.32"}, {"recomputation": True}],
        [{"precision": 32.32}, {"stage": 1, "recomputation": True}],
    ],
)
def test_several_ways_of_writing_the_same(given: list[Any]) -> None:
    assert _options(*given) == ({"stage": 0, "precision": "32.32"}, {"stage": 1, "recomputation": True})


def test_every_key() -> None:
    words = "{stage: 1, recomputation: false, precision: 16.32, compile: true, offload: true}"
    assert _options(words) == (
        {"stage": 1, "recomputation": False, "precision": "16.32", "compile": True, "offload": True},
    )


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (["{stage: 0, recompute: true}"], "recompute is not one of them"),
        (["{stage: zero}"], "stage is a whole number of at least 0"),
        (["{stage: true}"], "stage is a whole number of at least 0"),
        (["{stage: -1}"], "stage is a whole number of at least 0"),
        (["{recomputation: 1}"], "recomputation is true or false"),
        (["{compile: 'on'}"], "compile is true or false"),
        (["{offload: maybe}"], "offload is true or false"),
        (["{precision: 64.64}"], "precision is one of 32.32, 16.32"),
        (["{recomputation: true}"], "names its stage"),
        (["recomputation"], "YAML mappings"),
        (["{stage: 0"], "YAML mappings"),
        (["{stage: 0, compile: true}", "{stage: 0, offload: true}"], "one mapping per stage"),
    ],
)
def test_what_is_refused(given: list[Any], words: str) -> None:
    with pytest.raises(BadInputError, match=words) as caught:
        _options(*given)
    assert "--stage-options" in str(caught.value)
    assert "\n" not in str(caught.value)
