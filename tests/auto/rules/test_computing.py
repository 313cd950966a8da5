"""Compiling within a budget, and loader workers for an accelerator."""

from typing import Any

import pytest

from drivetrain.auto.case import Case, DeviceFacts
from drivetrain.auto.rules.computing import decide_computing
from tests.auto.fingerprints import ACCELERATOR, CPU, KINDS, case_of

LOADING = ("num_workers", "accelerator_side_preprocess", "eight_bit_transfer")


def _decided(kind: str, device: DeviceFacts, decided: dict[str, Any] | None = None, **typed: Any) -> Case:
    case = case_of(KINDS[kind], typed, device=device)
    for field, value in (decided or {}).items():
        case.decide(field, value, "")
    decide_computing(case)
    return case


@pytest.mark.parametrize(
    ("typed", "compiles"),
    [
        ({}, "auto"),
        ({"budget": "10m"}, "auto"),
        ({"budget": "9m"}, "off"),
        ({"budget": "quick"}, "off"),
        ({"budget": "2m", "num_epochs": 100}, "auto"),
        ({"budget": "2m", "max_updates": 9}, "auto"),
        ({"max_time": "5m"}, "off"),
        ({"max_time": "20m"}, "auto"),
    ],
)
def test_a_short_budget_is_not_spent_on_compiling(typed: dict[str, Any], compiles: str) -> None:
    assert _decided("photographs", ACCELERATOR, **typed).value("compile") == compiles


def test_an_accelerator_gets_all_cores_where_images_are_decoded_in_each_pass() -> None:
    cropped = {"random_resized_crop": 0.2, "augment": True}
    case = _decided("photographs", ACCELERATOR, cropped)
    assert [case.value(field) for field in LOADING] == [ACCELERATOR.cores - 1, True, True]
    tiles = _decided("masks", ACCELERATOR, {"tile_size": 64})
    assert tiles.value("num_workers") == ACCELERATOR.cores - 1
    shared = _decided("photographs", ACCELERATOR, cropped, replicas=2)
    assert shared.value("num_workers") == (ACCELERATOR.cores - 2) // 2


@pytest.mark.parametrize(
    ("device", "decided", "typed"),
    [
        (CPU, {"random_resized_crop": 0.2}, {}),
        (ACCELERATOR, {}, {}),
        (ACCELERATOR, {"random_resized_crop": 0.2}, {"augment": False}),
        (ACCELERATOR, {"random_resized_crop": 0.2}, {"data_placement": "resident"}),
    ],
)
def test_loading_is_left_alone_otherwise(
    device: DeviceFacts, decided: dict[str, Any], typed: dict[str, Any]
) -> None:
    assert set(LOADING).isdisjoint(_decided("photographs", device, decided, **typed).decisions)


def test_typed_loading_stays() -> None:
    case = _decided(
        "photographs",
        ACCELERATOR,
        {"random_resized_crop": 0.2},
        num_workers=2,
        accelerator_side_preprocess=False,
    )
    assert set(LOADING).isdisjoint(case.decisions)
