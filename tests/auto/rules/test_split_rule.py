"""How validation images are held out: what file names say is told, and classes keep their shares."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from drivetrain.auto.case import Case, DeviceFacts
from drivetrain.auto.choose import fingerprint_of
from drivetrain.auto.rules.data_rules import decide_data
from drivetrain.cli.listing.fingerprint_text import fingerprint_lines
from drivetrain.data.fingerprint.fingerprint import Fingerprint
from drivetrain.recipe.load import resolve_recipe
from tests.data.folders import write_images

DEVICE = DeviceFacts(name="cpu", is_accelerator=False, cores=4)


def scans(folder: Path) -> Path:
    """Six patients with four images each, two of either class."""
    write_images(folder, {"ill": 12, "well": 12})
    for path in sorted(folder.glob("*/*.png")):
        number = int(path.stem)
        path.rename(path.with_name(f"p{number // 2}_{number % 2}{path.parent.name[0]}0.png"))
    return folder


def looked_at(folder: Path, **options: Any) -> Fingerprint:
    asked = {"dataset": "image-folder", "data_dir": str(folder), **options}
    return fingerprint_of(resolve_recipe(overrides=asked).recipe)


def decided(fingerprint: Fingerprint, **typed: Any) -> dict[str, str]:
    case = Case(fingerprint=fingerprint, device=DEVICE, typed=typed)
    decide_data(case)
    return {field: f"{decision.value}: {decision.reason}" for field, decision in case.decisions.items()}


def test_names_that_look_like_groups_are_told_and_not_acted_on(tmp_path: Path) -> None:
    found = looked_at(scans(tmp_path))
    assert found.groups is None
    assert found.suggested_groups is not None
    assert (found.suggested_groups.count, found.suggested_groups.first) == (6, ("p0", "p1", "p2"))
    assert any(
        line.startswith("files seem to come in 6 groups by prefix") for line in fingerprint_lines(found)
    )
    assert Fingerprint.from_json(json.loads(json.dumps(found.as_json()))) == found
    assert "group_by" not in decided(found)


def test_groups_that_were_asked_for_are_counted(tmp_path: Path) -> None:
    found = looked_at(scans(tmp_path), group_by="prefix")
    assert (found.groups, found.suggested_groups) == (6, None)
    lines = fingerprint_lines(found)
    assert "groups: 6 by --group-by" in lines
    assert not any("seem to come" in line for line in lines)
    assert "as near as 6 whole groups allow" in decided(found)["split_scheme"]


def test_classes_keep_their_share_where_images_are_held_out(tmp_path: Path) -> None:
    found = looked_at(write_images(tmp_path, {"a": 4, "b": 4}))
    assert found.suggested_groups is None
    assert decided(found)["split_scheme"].startswith("stratified: every class has its share")
    assert "split_scheme" in decided(found, validation_fraction=0.3)
    assert "split_scheme" not in decided(found, validation_fraction=0.0)
    assert "split_scheme" not in decided(found, folds=5)
    assert "split_scheme" not in decided(found, split_scheme="random")
    assert "split_scheme" not in decided(replace(found, samples={"train": 8, "validation": 4}))


def test_masks_have_no_classes_to_share_out(tmp_path: Path) -> None:
    found = looked_at(write_images(tmp_path, {"a": 2, "b": 2}))
    assert "split_scheme" not in decided(replace(found, task="segmentation"))
