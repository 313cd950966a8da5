"""File names suggest groups only where they can hardly mean anything else."""

import numpy as np
import pytest

from drivetrain.data.groups.suggest_groups import suggest_groups


def named(form: str, *, groups: int = 4, each: int = 5) -> list[str]:
    return [form.format(group=group, number=n) for group in range(1, groups + 1) for n in range(each)]


@pytest.mark.parametrize(
    ("form", "first"),
    [
        ("patient{group:02}_slice{number:02}.png", "patient01"),
        ("a/P{group}-{number}.jpg", "P1"),
        ("000{group}TP_00{number}690.png", "0001TP"),
        ("case{group}_t{number}_z07.tif page 3", "case1"),
    ],
)
def test_names_of_groups_are_found(form: str, first: str) -> None:
    found = suggest_groups(named(form), labels=None)
    assert found is not None
    assert (found.count, found.first[0], len(found.first)) == (4, first, 3)
    assert found.sentence.startswith(f"files seem to come in 4 groups by prefix ({first}, ")
    assert "--group-by prefix keeps each on one side" in found.sentence


@pytest.mark.parametrize(
    "form",
    [
        "IMG_{group}{number}.jpg",
        "DSC0{group}{number}.jpg",
        "cat_{group}{number}.png",
        "2023040{group}_12{number}000.jpg",
        "IMG2023040{group}_000{number}.jpg",
        "{group}{number}.png",
        "scan {group} ({number}).png",
        "patient{group}_left{number}x.png",
    ],
)
def test_ordinary_photographs_have_none(form: str) -> None:
    assert suggest_groups(named(form), labels=None) is None


def test_every_file_must_be_one_of_several() -> None:
    names = named("p{group}_{number}.png")
    assert suggest_groups(names, labels=None) is not None
    assert suggest_groups([*names, "p9_0.png"], labels=None) is None
    assert suggest_groups([*names, "overview.png"], labels=None) is None
    assert suggest_groups(named("p{group}_{number}.png", each=2), labels=None) is None
    assert suggest_groups(named("p{group}_{number}.png", groups=1), labels=None) is None
    assert suggest_groups([], labels=None) is None


def test_prefixes_that_name_the_classes_are_none() -> None:
    names = named("c{group}_{number}.png")
    classes = np.repeat(np.arange(4), 5)
    assert suggest_groups(names, labels=classes) is None
    assert suggest_groups(names, labels=classes // 2) is not None
