"""Other spellings reach their field; options of other hardware say what does the job here."""

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.aliases import ALIASES, REFUSALS, Target, refusal_of, require_target, target_of
from drivetrain.recipe.schema import Recipe


@pytest.mark.parametrize(
    ("key", "field"),
    [
        ("num-replicas", "replicas"),
        ("batch_size", "micro_batch_size"),
        ("dataset-path", "data_dir"),
        ("model-name", "model"),
        ("pipeline-num-parallel", "num_workers"),
        ("max_steps", "max_updates"),
        ("gradient-accumulation", "gradient_accumulation_count"),
        ("lr", "learning_rate"),
        ("epochs", "num_epochs"),
        ("model-dir", "output_dir"),
        ("kfold", "folds"),
        ("micro-batch-size", "micro_batch_size"),
        ("micro_batch_size", "micro_batch_size"),
    ],
)
def test_spellings(key: str, field: str) -> None:
    assert require_target(key) == Target(field)


def test_disabling_is_the_opposite_of_checkpoints() -> None:
    assert target_of("disable-ckpt-saving") == Target("checkpoints", inverted=True)


def test_aliases_point_at_fields_and_shadow_none() -> None:
    assert all(target.field in Recipe.model_fields for target in ALIASES.values())
    assert not set(ALIASES) & set(Recipe.model_fields)
    assert not set(REFUSALS) & (set(ALIASES) | set(Recipe.model_fields))


@pytest.mark.parametrize(
    "key", ["available-memory-proportion", "gather_conv_output", "max-reduce-many-buffer-size", "on-demand"]
)
def test_refusals_are_one_sentence(key: str) -> None:
    sentence = refusal_of(key)
    assert sentence is not None
    assert sentence.startswith("--" + key.replace("_", "-") + " has no counterpart here: ")
    assert "\n" not in sentence
    with pytest.raises(BadInputError, match="no counterpart"):
        require_target(key)


def test_unknown_key_has_the_nearest_name() -> None:
    with pytest.raises(
        BadInputError, match=r"^micro-batch-siz is not an option\. Did you mean micro-batch-size\?$"
    ):
        require_target("micro-batch-siz")
    with pytest.raises(BadInputError, match=r"^zzzzzz is not an option\.$"):
        require_target("zzzzzz")
    assert refusal_of("micro-batch-size") is None
