"""The folds of images with masks, with the published lists."""

import numpy as np
import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.fold_schemes import fold_indices, held_out_size, system_a_split
from drivetrain.data.folds import cut_folds
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.params import FoldScheme

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
    with pytest.raises(BadInputError, match="--fold-scheme habana cannot cut 5 samples"):
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
