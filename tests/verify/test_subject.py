"""What a verification makes of a recipe."""

from typing import Any

import pytest
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.load import resolve_recipe
from drivetrain.verify.subject import Subject, prepare_subject


def _subject(config: str | None = None, **options: Any) -> Subject:
    return prepare_subject(resolve_recipe(config=config, overrides=options), updates=10)


def test_a_small_slow_training_of_the_same_kind() -> None:
    subject = _subject(dataset="digits", optimizer="adam", label_smoothing=0.1, seed=3)
    assert subject.recipe.optimizer == "adam"
    assert subject.recipe.label_smoothing == 0.1
    assert subject.recipe.max_updates == 10
    assert subject.recipe.learning_rate == pytest.approx(0.1 * 0.1 * 8 / 32)
    assert subject.has_batch_norm
    assert subject.warnings == ()
    assert [subject.at_point(point).recipe.seed for point in (0, 2)] == [3, 5]


def test_large_images_become_small_unless_a_size_was_typed() -> None:
    assert _subject(model="unet_same").data.spec.height == 32
    assert _subject(model="unet_same", image_size=48).data.spec.height == 48
    assert _subject(dataset="digits").recipe.image_size is None


def test_a_model_without_batch_norm_is_known_as_one() -> None:
    assert not _subject(dataset="digits", model="mnist_cnn", image_size=12).has_batch_norm


def test_a_global_batch_below_the_recipes_micro_batch_will_do() -> None:
    subject = _subject(dataset="digits", global_batch_size=12)
    assert (subject.batch.micro, subject.batch.global_batch) == (4, 12)


def test_options_without_effect_are_named() -> None:
    compiled = _subject(dataset="digits", stages=2, stage_options=["{stage: 0, compile: true}"], profile=2)
    assert compiled.warnings == (
        "--profile 2 has no effect on verify.",
        "compile in --stage-options has no effect on verify.",
    )
    subject = _subject(dataset="digits", num_epochs=3, output_dir="somewhere")
    assert subject.warnings == (
        "--num-epochs 3 has no effect on verify.",
        "--output-dir somewhere has no effect on verify.",
    )


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"precision": "16.32"}, "verify computes in float32 and float64"),
        ({"stages": 2, "stage_options": ["{stage: 1, precision: 16.32}"]}, "stage 1: precision 16.32 cannot"),
        ({"device": "cuda"}, "--device cpu works"),
        ({"dataset": "synthetic", "dataset_size": 3}, "larger than the 3 training samples"),
    ],
)
def test_what_cannot_be_verified_is_refused(options: dict[str, Any], said: str) -> None:
    from drivetrain.ranks.replica_group import ALONE
    from drivetrain.verify.cuts import Layout
    from drivetrain.verify.measure import measure_rank

    with pytest.raises(BadInputError, match=said):
        measure_rank(ALONE, _subject(**{"dataset": "digits", **options}), Layout(micro=8), "float32")


def test_a_module_that_no_other_process_knows_is_refused() -> None:
    class Local(nn.Linear):
        pass

    with pytest.raises(BadInputError, match="define its class and functions at the top level"):
        prepare_subject(
            resolve_recipe(overrides={"dataset": "digits"}), updates=1, make_model=lambda _: Local(1, 1)
        )
