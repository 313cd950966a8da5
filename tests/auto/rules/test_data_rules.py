"""Channels, normalisation and the share that is held out."""

from typing import Any

import pytest

from drivetrain.auto.rules.data_rules import decide_data, decide_split
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
