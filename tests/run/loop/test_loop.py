"""What a run shows of its work."""

from collections import Counter
from pathlib import Path

import pytest

from drivetrain.recipe.load import resolve_recipe
from drivetrain.run.start import train_resolved
from tests.run.shown_work import ShownWork
from tests.run.small_training import SMALL

pytestmark = pytest.mark.usefixtures("no_pictures")


def test_everything_that_takes_its_time_is_shown_by_name_and_ends(tmp_path: Path) -> None:
    shown = ShownWork()
    overrides = {**SMALL, "output_dir": str(tmp_path / "run"), "validation_micro_batch_size": 10}
    train_resolved(resolve_recipe(overrides=overrides), reporter=shown)
    assert Counter(shown.names) == {
        "building the model": 1,
        "training": 1,
        "first update": 1,
        "validating": 3,
        "writing a checkpoint": 4,
        "drawing figures": 1,
    }
    assert Counter(shown.ended) == Counter(shown.names)
    assert shown.totals["validating"] == 40
    assert shown.counted["validating"] == 3 * [10, 20, 30, 40]
    assert shown.counted["training"] == list(range(2, 19))


def test_a_compiled_first_update_is_called_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.compile", lambda function, **_: function)
    shown = ShownWork()
    options = {"compile": "on", "max_updates": 2, "output_dir": str(tmp_path / "run")}
    train_resolved(resolve_recipe(overrides={**SMALL, **options}), reporter=shown)
    assert "compiling the model" in shown.names


def test_a_validation_alone_is_shown(tmp_path: Path) -> None:
    shown = ShownWork()
    options = {"training": False, "output_dir": str(tmp_path / "run")}
    train_resolved(resolve_recipe(overrides={**SMALL, **options}), reporter=shown)
    assert shown.names == shown.ended == ["building the model", "validating"]
