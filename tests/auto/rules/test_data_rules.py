"""Channels, normalisation and the share that is held out."""

from typing import Any

import numpy as np
import pytest

from drivetrain.auto.rules.data_rules import decide_data, decide_split
from drivetrain.data.held_out import held_out_order
from tests.auto.fingerprints import KINDS, case_of, photographs


def _values(kind: str, **typed: Any) -> dict[str, Any]:
    case = case_of(KINDS[kind], typed)
    decide_split(case)
    decide_data(case)
    return {field: decision.value for field, decision in case.decisions.items()}


@pytest.mark.parametrize(
    ("images", "share"), [(10, 0.2), (25_000, 0.2), (50_000, 0.1), (100_000, 0.05), (3_000_000, 0.0017)]
)
def test_the_share_that_is_held_out(images: int, share: float) -> None:
    case = case_of(photographs(samples={"train": images}))
    decide_split(case)
    assert case.value("validation_fraction") == share
    assert case.train_samples == images - round(share * images)


def test_nothing_is_held_out_of_data_with_validation_images_or_folds() -> None:
    assert "validation_fraction" not in _values("own validation")
    assert "validation_fraction" not in _values("photographs", folds=5)


def test_grey_files_are_read_in_grey_except_for_models_of_others() -> None:
    own = _values("grey files in colour")
    assert (own["channels"], own["normalisation"]) == (1, {"mean": [0.13], "std": [0.3]})
    other = _values("grey files in colour", model="my_models:create_net")
    assert "channels" not in other
    assert other["normalisation"] == {"mean": [0.13] * 3, "std": [0.3] * 3}
    assert _values("grey files in colour", channels=3)["normalisation"] == other["normalisation"]


def test_a_librarys_model_brings_its_own_normalisation() -> None:
    assert "normalisation" not in _values("photographs", model="timm/resnet18")


def test_values_of_16_bit_images_are_left_alone() -> None:
    assert "normalisation" not in _values("grey 16-bit masks")


def test_a_nearly_constant_channel_is_not_enlarged() -> None:
    case = case_of(photographs(std=(0.25, 0.0, 0.26)))
    decide_data(case)
    assert case.value("normalisation")["std"] == [0.25, 0.02, 0.26]
    raised = "; a deviation below 0.02 is raised to it, or noise would grow"
    assert case.decisions["normalisation"].reason.endswith(raised)
    plain = case_of(photographs())
    decide_data(plain)
    assert plain.decisions["normalisation"].reason.endswith("measured on 800 of them")


@pytest.mark.parametrize(
    ("counts", "held_out"),
    [
        ((3, 3), 2),
        ((2, 2, 2), 3),
        ((4, 2, 3, 1), 3),
        ((1, 1), 1),
        ((40, 40), 16),
        ((98, 2), 26),
        ((7, 3), 2),
        ((9, 3), 3),
    ],
    ids=str,
)
def test_each_class_with_two_images_is_on_both_sides(counts: tuple[int, ...], held_out: int) -> None:
    images = sum(counts)
    case = case_of(photographs(samples={"train": images}, class_counts=counts))
    decide_split(case)
    assert case.validation_samples == held_out
    labels = np.repeat(np.arange(len(counts)), counts)
    for seed in range(20):
        first = set(labels[held_out_order(images, labels=labels, seed=seed)[:held_out]].tolist())
        rest = set(labels[held_out_order(images, labels=labels, seed=seed)[held_out:]].tolist())
        both = {label for label, count in enumerate(counts) if count > 1}
        assert both <= first & rest


def test_many_images_or_a_typed_split_keep_the_fifth() -> None:
    many = case_of(photographs(samples={"train": 400}, class_counts=(398, 2)))
    decide_split(many)
    assert many.value("validation_fraction") == 0.2
    few = photographs(samples={"train": 6}, class_counts=(3, 3))
    random = case_of(few, {"split_scheme": "random"})
    decide_split(random)
    assert random.value("validation_fraction") == 0.2
