"""Folds share out every sample once, and every class evenly."""

import numpy as np
import pytest
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.data.folds import cut_folds, fold_indices, fold_size, held_out_size, system_a_split, take_fold
from drivetrain.data.source import ArraySource, DataSpec, DataSplits, Source, SubsetSource
from drivetrain.data.splits import open_data, split_user_data
from drivetrain.plan.inputs import planned_inputs
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.params import FoldScheme
from drivetrain.recipe.schema import Recipe

GRAPHCORE = (
    (10, 14, 17, 19, 20, 21),
    (3, 4, 22, 23, 24, 26),
    (2, 6, 7, 13, 18, 25),
    (0, 1, 15, 16, 27, 29),
    (5, 8, 9, 11, 12, 28),
)
NVIDIA = (
    (25, 3, 0, 21, 15, 12),
    (4, 18, 19, 9, 7, 25),
    (23, 20, 1, 29, 6, 4),
    (22, 5, 16, 8, 14, 23),
    (26, 24, 27, 11, 17, 22),
)
HABANA = (
    (19, 17, 6, 28, 2, 13),
    (25, 0, 1, 22, 10, 19),
    (16, 14, 20, 9, 15, 25),
    (23, 18, 4, 3, 24, 16),
    (8, 27, 12, 21, 11, 23),
)
SCHEMES: tuple[FoldScheme, ...] = ("disjoint", "graphcore", "nvidia", "habana")


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
    assert "--folds 3 is more than the number of samples of class class 1 (2)" in warning


def test_where_no_class_suffices_the_folds_are_plain_and_that_is_said() -> None:
    splits = splits_of(np.arange(6) % 3)
    taken = [take_fold(splits, folds=4, fold=fold, seed=0) for fold in range(4)]
    assert sorted(number for fold in taken for number in numbers(fold.validation)) == list(range(6))
    assert "--folds 2 can" in taken[0].warnings[0]


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
        ({"folds": 5, "fold": 5}, "numbered from 0 to 4; --fold 4 works"),
        ({"folds": 5, "fold": 0, "validation_fraction": 0.2}, "cannot both be given"),
    ],
)
def test_contradictions_are_refused(options: dict[str, float], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        resolve_recipe(overrides=options)


def test_one_training_needs_one_fold() -> None:
    with pytest.raises(BadInputError, match="such as --fold 0; `drivetrain crossval` trains all folds"):
        open_data(Recipe(dataset="digits", folds=5))


def validated(scheme: FoldScheme, *, samples: int = 30, seed: int = 0) -> list[tuple[int, ...]]:
    folds = [fold_indices(scheme, samples=samples, folds=5, fold=fold, seed=seed) for fold in range(5)]
    return [tuple(validation.tolist()) for _, validation in folds]


@pytest.mark.parametrize(
    ("scheme", "lists"), [("graphcore", GRAPHCORE), ("nvidia", NVIDIA), ("habana", HABANA)]
)
def test_the_published_lists(scheme: FoldScheme, lists: tuple[tuple[int, ...], ...]) -> None:
    assert validated(scheme) == list(lists)
    assert validated(scheme, seed=7) == list(lists)


@pytest.mark.parametrize(
    ("scheme", "never", "twice"),
    [("nvidia", {2, 10, 13, 28}, {4, 22, 23, 25}), ("habana", {5, 7, 26, 29}, {16, 19, 23, 25})],
)
def test_rotated_folds_overlap(scheme: FoldScheme, never: set[int], twice: set[int]) -> None:
    counts = np.bincount([index for fold in validated(scheme) for index in fold], minlength=30)
    assert set(np.flatnonzero(counts == 0).tolist()) == never
    assert set(np.flatnonzero(counts == 2).tolist()) == twice


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("samples", [6, 11, 30, 31])
def test_what_does_not_validate_trains(scheme: FoldScheme, samples: int) -> None:
    for fold in range(5):
        train, validation = fold_indices(scheme, samples=samples, folds=5, fold=fold, seed=0)
        assert sorted([*train.tolist(), *validation.tolist()]) == list(range(samples))
        assert len(validation) == held_out_size(scheme, samples=samples, folds=5, fold=fold) > 0


def test_disjoint_folds_are_those_of_other_data_without_classes_to_share_out() -> None:
    folds = validated("disjoint", seed=3)
    expected = cut_folds(np.zeros((30, 1), dtype=np.int64), folds=5, seed=3)
    assert folds == [tuple(fold.tolist()) for fold in expected]
    assert sorted(index for fold in folds for index in fold) == list(range(30))
    assert validated("disjoint", seed=4) != folds


def test_the_callers_random_state_is_left_alone() -> None:
    np.random.seed(5)
    expected = np.random.random()
    np.random.seed(5)
    for scheme in SCHEMES:
        validated(scheme)
    assert np.random.random() == expected


def test_without_folds_the_last_fifth_validates() -> None:
    train, validation = system_a_split(30)
    assert train.tolist() == list(range(24))
    assert validation.tolist() == list(range(24, 30))


def test_impossible_folds_are_refused() -> None:
    with pytest.raises(BadInputError, match=r"--folds 4 .* --fold-scheme nvidia.*--folds 5 works"):
        fold_indices("nvidia", samples=30, folds=4, fold=0, seed=0)
    with pytest.raises(BadInputError, match="--fold-scheme habana cannot split 5 samples into folds"):
        fold_indices("habana", samples=5, folds=5, fold=0, seed=0)
    with pytest.raises(BadInputError, match="--folds 9 is more than the 8 training samples"):
        fold_indices("graphcore", samples=8, folds=9, fold=0, seed=0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"fold_scheme": "graphcore"}, "--fold-scheme graphcore has no effect without folds; add --folds 5"),
        (
            {"fold_scheme": "nvidia", "folds": 4, "fold": 0},
            "--folds 4 is impossible with --fold-scheme nvidia",
        ),
        ({"fold_scheme": "habana", "folds": 5, "fold": 5}, "--fold 4 works"),
    ],
)
def test_contradictions_are_refused_before_data_are_opened(options: dict[str, object], words: str) -> None:
    with pytest.raises(BadInputError, match=words):
        resolve_recipe(overrides=options)
    assert resolve_recipe(overrides={"fold_scheme": "graphcore", "folds": 4, "fold": 0}).recipe.folds == 4
