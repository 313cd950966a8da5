"""Augmentation by what images show and how often each is seen."""

from dataclasses import replace
from typing import Any

import pytest

from drivetrain.auto.rules.augmentation import decide_augmentation, views_of
from drivetrain.data.fingerprint.fingerprint import Asymmetry
from tests.auto.fingerprints import KINDS, case_of, photographs


def _values(kind: str, *, epochs: int = 50, **typed: Any) -> dict[str, Any]:
    case = case_of(KINDS[kind], typed)
    decide_augmentation(case, epochs=epochs)
    return {field: decision.value for field, decision in case.decisions.items()}


@pytest.mark.parametrize(
    ("left_right", "up_down", "flips", "views"),
    [(0.0, 0.9, "horizontal", 2), (0.9, 0.0, "vertical", 2), (0.1, 0.1, "both", 4), (0.9, 0.9, "none", 1)],
)
def test_images_are_mirrored_where_that_changes_nothing(
    left_right: float, up_down: float, flips: str, views: int
) -> None:
    found = photographs(asymmetry=Asymmetry(left_right=left_right, up_down=up_down, quarter_turn=0.0))
    case = case_of(found)
    decide_augmentation(case, epochs=50)
    assert case.value("random_flips") == flips
    assert case.value("flip_averaging") == (flips != "none")
    assert views_of(case_of(found)) == views
    assert views_of(case_of(found, {"flip_averaging": False})) == 1
    assert views_of(case_of(found, {"augment": False})) == 1


def test_few_images_of_a_class_are_not_mirrored_but_masked_ones_are() -> None:
    assert _values("ten images")["random_flips"] == "none"
    masks = case_of(KINDS["two masks"])
    decide_augmentation(masks, epochs=50)
    flips, turns = (masks.decisions[field] for field in ("random_flips", "rotate"))
    assert (flips.value, turns.value) == ("both", 180.0)
    assert flips.reason == turns.reason
    assert flips.reason.endswith("most images with masks have none")


def test_few_passes_need_no_augmentation() -> None:
    assert _values("photographs", epochs=4) == {"augment": False}
    assert _values("photographs", epochs=5)["augment"] is True
    assert _values("photographs", epochs=19, model="mnist_cnn") == {"augment": False}
    assert _values("photographs", epochs=20, model="mnist_cnn")["augment"] is True


def test_a_typed_augmentation_is_neither_turned_off_nor_made_idle() -> None:
    assert _values("photographs", epochs=2, random_resized_crop=0.5) == {}
    assert _values("photographs", epochs=2, random_flips="none") == {}
    assert _values("photographs", epochs=2, augment=True)["random_resized_crop"] == 0.35
    assert _values("photographs", augment=False) == {}
    assert _values("masks", augment=False) == {}


def test_long_trainings_change_images_more() -> None:
    short, long = _values("photographs", epochs=99), _values("photographs", epochs=100)
    assert (short["random_resized_crop"], long["random_resized_crop"]) == (0.35, 0.2)
    assert ("mixup" in short, long["mixup"]) == (False, 0.2)


def test_grey_16_bit_images_get_no_change_of_brightness() -> None:
    assert {"augment", "gamma"} & _values("grey 16-bit masks").keys() == set()
    assert {"augment", "gamma"} <= _values("grey masks").keys()


def test_colours_change_only_where_there_are_any() -> None:
    assert "rand_augment" in _values("photographs")
    assert "rand_augment" not in _values("grey files in colour")
    assert "rand_augment_magnitude" not in _values("photographs", rand_augment=0)


def test_images_without_a_top_are_turned_all_the_way() -> None:
    assert _values("masks")["rotate"] == 180.0
    assert _values("street scenes")["rotate"] == 15.0
    turned = replace(KINDS["masks"], asymmetry=Asymmetry(left_right=0.0, up_down=0.0, quarter_turn=0.5))
    case = case_of(turned)
    decide_augmentation(case, epochs=50)
    assert case.value("rotate") == 15.0


def test_masked_images_without_a_top_are_bent_by_a_share_of_their_side() -> None:
    bent = _values("two masks")
    side = KINDS["two masks"].height_px.median
    assert bent["rotate"] == 180.0
    assert (bent["elastic"], bent["noise"]) == (round(side * 10 / 512, 1), 0.05)
    assert {"elastic", "noise"}.isdisjoint(_values("two masks", rotate=10.0))
    assert "elastic" not in _values("two masks", elastic=3.0)
    assert _values("two masks", image_size=128)["elastic"] == 2.5
    assert "elastic" not in _values("two masks", tile_size=32)
