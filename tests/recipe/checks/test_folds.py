"""Options that say how samples are divided must mean something, and fit each other."""

from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe


def resolved(**options: Any) -> Recipe:
    return resolve_recipe(overrides=options).recipe


@pytest.mark.parametrize("group_by", ["prefix", "folder", "file", r"^(patient\d+)_", r"/(\w+)/scan"])
def test_ways_and_patterns_of_one_group_are_taken(group_by: str) -> None:
    assert resolved(group_by=group_by).group_by == group_by
    assert resolved(group_by=group_by, folds=5, fold=0).group_by == group_by


@pytest.mark.parametrize(
    ("group_by", "says"),
    [
        (
            "foldr",
            "--group-by foldr is neither prefix, folder or file nor a regular expression",
        ),
        ("foldr", "--group-by folder works"),
        (r"^(\d+)_(\d+)", "nor a regular expression with one group in parentheses; --group-by prefix works"),
        ("^(p", "is no regular expression (missing ), unterminated subpattern at position 1)"),
    ],
)
def test_other_patterns_are_refused(group_by: str, says: str) -> None:
    with pytest.raises(BadInputError) as refusal:
        resolved(group_by=group_by)
    assert says in str(refusal.value)


def test_published_folds_cannot_keep_groups() -> None:
    data: dict[str, Any] = {"dataset": "mask-folder", "data_dir": "x", "model": "unet_same", "folds": 5}
    with pytest.raises(BadInputError, match="--fold-scheme nvidia has folds of its own"):
        resolved(**data, fold_scheme="nvidia", group_by="prefix")


def test_a_stratified_share_is_for_classes_and_for_no_folds() -> None:
    assert resolved(split_scheme="stratified", dataset="digits").split_scheme == "stratified"
    with pytest.raises(BadInputError, match="--split-scheme stratified has no effect with --folds 5"):
        resolved(split_scheme="stratified", dataset="digits", folds=5, fold=0)
    with pytest.raises(BadInputError, match="--split-scheme stratified is for classification"):
        resolved(split_scheme="stratified", dataset="synthetic-em", model="unet_same")
