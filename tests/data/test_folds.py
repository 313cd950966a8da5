"""Folds share out every sample once, and every class evenly."""

import numpy as np
import pytest
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.data.folds import fold_size, take_fold
from drivetrain.data.source import ArraySource, DataSpec, DataSplits, Source, SubsetSource
from drivetrain.data.splits import open_data, split_user_data
from drivetrain.plan.inputs import planned_inputs
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe


def splits_of(labels: NDArray[np.int64], *, validation: Source | None = None) -> DataSplits:
    """Samples whose only pixel is their own number."""
    images = np.arange(len(labels), dtype=np.float32).reshape(-1, 1, 1, 1)
    classes = int(labels.max()) + 1
    spec = DataSpec(
        channels=1,
        height=1,
        width=1,
        num_classes=classes,
        class_names=tuple(f"class {label}" for label in range(classes)),
        image_dtype="float32",
    )
    train = ArraySource(images=images, labels=labels)
    return DataSplits(train=train, validation=validation, test=None, spec=spec)


def numbers(source: Source | None) -> list[int]:
    assert source is not None
    return [int(value) for value in source.fetch(np.arange(len(source)))[0].reshape(-1)]


def labels_in(source: Source | None) -> list[int]:
    assert source is not None
    return [int(count) for count in np.bincount(source.fetch(np.arange(len(source)))[1])]


def test_every_sample_validates_exactly_once_and_trains_in_all_other_folds() -> None:
    splits = splits_of(np.arange(23) % 3)
    taken = [take_fold(splits, folds=4, fold=fold, seed=0) for fold in range(4)]
    assert sorted(number for fold in taken for number in numbers(fold.validation)) == list(range(23))
    for fold in taken:
        assert sorted(numbers(fold.train) + numbers(fold.validation)) == list(range(23))
        assert fold.warnings == []


def test_every_fold_has_its_share_of_every_class() -> None:
    splits = splits_of(np.repeat([0, 1], [40, 10]))
    for fold in range(5):
        assert labels_in(take_fold(splits, folds=5, fold=fold, seed=3).validation) == [8, 2]


def test_negative_control_plain_folds_do_not_share_the_classes_out() -> None:
    shares = []
    for fold in range(5):
        plain = np.array_split(np.random.default_rng(0).permutation(50), 5)[fold]
        shares.append(np.bincount(np.repeat([0, 1], [40, 10])[plain], minlength=2).tolist())
    assert shares != [[8, 2]] * 5


def test_folds_follow_the_seed_and_nothing_else() -> None:
    splits = splits_of(np.arange(40) % 4)
    first = numbers(take_fold(splits, folds=4, fold=1, seed=0).validation)
    np.random.seed(7)
    assert numbers(take_fold(splits, folds=4, fold=1, seed=0).validation) == first
    assert numbers(take_fold(splits, folds=4, fold=1, seed=1).validation) != first


@pytest.mark.parametrize("samples", [23, 24, 25])
def test_the_size_of_a_fold_is_foretold(samples: int) -> None:
    splits = splits_of((np.arange(samples) ** 2) % 3)
    for fold in range(4):
        taken = take_fold(splits, folds=4, fold=fold, seed=0)
        assert len(numbers(taken.validation)) == fold_size(samples, folds=4, fold=fold)


def test_own_validation_samples_become_the_test() -> None:
    own = SubsetSource(splits_of(np.arange(8) % 2).train, np.arange(3))
    taken = take_fold(splits_of(np.arange(8) % 2, validation=own), folds=2, fold=0, seed=0)
    assert taken.test is own
    assert len(numbers(taken.validation)) == 4


def test_scarce_classes_are_named() -> None:
    (warning,) = take_fold(splits_of(np.repeat([0, 1], [9, 2])), folds=3, fold=0, seed=0).warnings
    assert "--folds 3 is more than the samples of class class 1 (2)" in warning


def test_where_no_class_suffices_the_folds_are_plain_and_that_is_said() -> None:
    splits = splits_of(np.arange(6) % 3)
    taken = [take_fold(splits, folds=4, fold=fold, seed=0) for fold in range(4)]
    assert sorted(number for fold in taken for number in numbers(fold.validation)) == list(range(6))
    assert "--folds 2 would" in taken[0].warnings[0]


def test_more_folds_than_samples_are_refused() -> None:
    with pytest.raises(BadInputError, match="--folds 7 is more than the 6 training samples; --folds 6 works"):
        take_fold(splits_of(np.arange(6) % 2), folds=7, fold=0, seed=0)


def test_labels_of_a_source_without_a_list_of_them_are_fetched() -> None:
    class Fetching:
        def __len__(self) -> int:
            return 12

        def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
            return indices.astype(np.float32).reshape(-1, 1, 1, 1), indices % 3

    known = splits_of(np.arange(12) % 3)
    fetched = DataSplits(train=Fetching(), validation=None, test=None, spec=known.spec)
    for fold in range(3):
        assert numbers(take_fold(fetched, folds=3, fold=fold, seed=0).validation) == numbers(
            take_fold(known, folds=3, fold=fold, seed=0).validation
        )


def test_limits_come_after_the_folds_and_the_default_share_does_not_count() -> None:
    whole = open_data(Recipe(dataset="digits", folds=5, fold=2))
    assert (len(whole.train), whole.validation is not None and len(whole.validation)) == (1438, 359)
    limited = open_data(
        Recipe(dataset="digits", folds=5, fold=2, limit_train_samples=7, limit_validation_samples=3)
    )
    assert limited.validation is not None
    assert (len(limited.train), len(limited.validation)) == (7, 3)
    assert np.array_equal(limited.train.fetch(np.arange(7))[0], whole.train.fetch(np.arange(7))[0])


def test_data_given_in_python_are_cut_too() -> None:
    images, labels = np.arange(20, dtype=np.uint8).reshape(20, 1, 1, 1), np.arange(20) % 4
    data = split_user_data(Recipe(folds=4, fold=0), train=(images, labels))
    assert sorted(labels_in(data.validation)) == [1, 1, 1, 2]
    assert len(numbers(data.train)) == 15


@pytest.mark.parametrize("fold", [0, 3, 4])
def test_the_plan_counts_as_the_data_do(fold: int) -> None:
    resolved = resolve_recipe(overrides={"dataset": "digits", "folds": 5, "fold": fold})
    planned = planned_inputs(resolved.recipe, origins=resolved.origins).samples
    assert planned == len(open_data(resolved.recipe).train)


def test_a_plan_needs_no_fold_and_takes_its_share_of_a_given_size() -> None:
    resolved = resolve_recipe(overrides={"dataset": "synthetic", "folds": 4, "dataset_size": 100})
    assert planned_inputs(resolved.recipe, origins=resolved.origins).samples == 75


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fold": 2}, "--fold 2 needs the number of folds; add --folds 5"),
        ({"folds": 5, "fold": 5}, "counted from 0 to 4; --fold 4 works"),
        ({"folds": 5, "fold": 0, "validation_fraction": 0.2}, "cannot both be given"),
    ],
)
def test_contradictions_are_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        resolve_recipe(overrides=options)


def test_one_training_needs_one_fold() -> None:
    with pytest.raises(BadInputError, match="such as --fold 0; `drivetrain crossval` trains them all"):
        open_data(Recipe(dataset="digits", folds=5))
