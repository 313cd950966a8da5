"""What a plan says of precision: in words, and in bytes."""

import pytest

from drivetrain.plan.precision import precision_in_words
from drivetrain.recipe.params import PrecisionList
from drivetrain.recipe.schema import Recipe
from tests.plan.staged_runs import planned

HALF = {"precision": "16.16", "half_type": "float16"}


@pytest.mark.parametrize(
    ("recipe", "words"),
    [
        (Recipe(device="cpu"), "32.32 (float32)"),
        (Recipe(device="cuda:1"), "16.32 (bfloat16)"),
        (Recipe(precision="16.32", half_type="float16"), "16.32 (float16)"),
        (
            Recipe(precision="16.16", stochastic_rounding=True),
            "16.16 (bfloat16, stochastic rounding of weights)",
        ),
        (
            Recipe(precision="16.32", precision_list=PrecisionList(half=("conv",))),
            "16.32 (bfloat16, some layers by --precision-list)",
        ),
    ],
)
def test_precisions_in_words(recipe: Recipe, words: str) -> None:
    assert precision_in_words(recipe) == words


def test_16_bit_weights_take_two_bytes() -> None:
    wide, half = (
        planned("cifar_resnet8", stages=2, gradient_accumulation_count=2, **options)
        for options in ({"precision": "16.32", "half_type": "float16"}, HALF)
    )
    assert half["precision"] == "16.16 (float16)"
    for before, after in zip(wide["stages"], half["stages"], strict=True):
        for name in ("gradients", "optimiser_states"):
            assert after["memory"][name] == before["memory"][name] // 2
        # Batch-norm statistics stay wide.
        assert before["memory"]["parameters"] // 2 < after["memory"]["parameters"]
        assert after["memory"]["parameters"] < before["memory"]["parameters"]
        assert after["peak_bytes"] < before["peak_bytes"]
