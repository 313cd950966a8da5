"""Data are measured as the recipe names them, and refused early; micro-batches are made to fit the memory."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from drivetrain.auto.choose import _Timed, choose_by_rules, fingerprint_of, fit_memory
from drivetrain.auto.decide import decide
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.schema import Recipe
from tests.auto.fingerprints import ACCELERATOR, photographs
from tests.data.folders import truncate, write_images, write_table

GIVEN = {"dataset": "image-folder", "data_dir": "photos"}


def _timed(
    monkeypatch: pytest.MonkeyPatch, *, most: Mapping[int, int], **typed: str
) -> tuple[_Timed, list[Any]]:
    """A timer for a device whose memory takes at most so many images of a side."""
    tried: list[tuple[int, int, int | None]] = []

    def sample_seconds(recipe: Recipe, **_: Any) -> float:
        side = recipe.image_size or 0
        tried.append((side, recipe.micro_batch_size, recipe.global_batch_size))
        if recipe.micro_batch_size > most.get(side, 1000):
            raise torch.OutOfMemoryError
        return 1e-6 * side

    monkeypatch.setattr("drivetrain.auto.choose.sample_seconds", sample_seconds)
    return _Timed({**GIVEN, **typed}, reporter=Reporter(quiet=True)), tried


def test_the_update_stays_and_only_that_network_gets_smaller_micro_batches(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    timed, tried = _timed(monkeypatch, most={224: 16})
    large = {"model": "resnet18", "image_size": 224, "micro_batch_size": 64}
    small = {**large, "image_size": 96}
    assert timed.seconds(large) == 1e-6 * 224
    assert tried == [(224, 64, None), (224, 32, 64), (224, 16, 64)]
    assert timed.seconds(small) == 1e-6 * 96
    assert (timed.fitting(large), timed.fitting(small)) == (16, None)


def test_a_typed_micro_batch_is_not_made_smaller(monkeypatch: pytest.MonkeyPatch) -> None:
    timed, tried = _timed(monkeypatch, most={224: 16}, micro_batch_size="64")
    with pytest.raises(BadInputError, match="No micro-batch fits the memory"):
        timed.seconds({"model": "resnet18", "image_size": 224})
    assert len(tried) == 1


def test_the_decision_keeps_the_update_and_its_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    timed, _ = _timed(monkeypatch, most=dict.fromkeys((224, 192, 160, 128, 96, 64), 8))
    case = decide(photographs(), device=ACCELERATOR, typed={}, time=timed.seconds, left_s=lambda: 600.0)
    whole, rate = case.global_batch, case.value("learning_rate")
    fit_memory(case, timed.fitting({field: found.value for field, found in case.decisions.items()}))
    assert whole == 64
    assert (case.value("micro_batch_size"), case.global_batch, case.value("learning_rate")) == (8, 64, rate)
    assert "do not fit the memory" in case.decisions["micro_batch_size"].reason


def test_typed_accumulation_is_not_given_beside_an_update(monkeypatch: pytest.MonkeyPatch) -> None:
    timed, tried = _timed(monkeypatch, most={224: 16}, gradient_accumulation_count="4")
    assert timed.seconds({"model": "resnet18", "image_size": 224, "micro_batch_size": 64}) == 1e-6 * 224
    assert tried == [(224, 64, None), (224, 32, None), (224, 16, None)]


def test_the_table_that_was_named_is_read(tmp_path: Path) -> None:
    write_images(tmp_path / "images", {"x": 4})
    rows = [f"images/x/00{number}.png" for number in range(4)]
    write_table(tmp_path / "a.csv", "old,new,kind,sex", *(f"none,{row},{row[-5]},f" for row in rows))
    write_table(tmp_path / "b.csv", "file,kind", *(f"{row},z" for row in rows))
    named: dict[str, Any] = {"label_table": "a.csv", "file_column": "new", "label_column": "kind"}
    recipe = Recipe(dataset="image-table", data_dir=str(tmp_path), **named)
    assert fingerprint_of(recipe).class_names == ("0", "1", "2", "3")
    with pytest.raises(BadInputError, match="--label-table"):
        fingerprint_of(Recipe(dataset="image-table", data_dir=str(tmp_path)))


def _choose(recipe: Recipe) -> None:
    given = {"dataset": recipe.dataset, "data_dir": recipe.data_dir}
    choose_by_rules(recipe, typed={}, overrides=given, left_s=lambda: 600.0, reporter=Reporter(quiet=True))


def test_what_training_would_refuse_is_refused_before_networks_are_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    timed: list[Recipe] = []

    def sample_seconds(recipe: Recipe, **_: Any) -> float:
        timed.append(recipe)
        return 1e-3

    monkeypatch.setattr("drivetrain.auto.choose.sample_seconds", sample_seconds)
    folder = write_images(tmp_path / "photos", {"ant": 5, "bee": 5})
    own: dict[str, Any] = {"dataset": "image-folder", "data_dir": str(folder), "device": "cpu"}
    with pytest.raises(BadInputError, match=r"--stop-at dice=0\.9 is not a metric"):
        _choose(Recipe(**own, stop_at="dice=0.9"))
    truncate(folder / "bee" / "003.png")
    with pytest.raises(BadInputError, match=r"bee/003\.png cannot be read: .* --on-bad-sample skip"):
        _choose(Recipe(**own))
    assert timed == []
    assert fingerprint_of(Recipe(**own, on_bad_sample="skip")).samples == {"train": 10}
    _choose(Recipe(**own, on_bad_sample="skip"))
    assert timed
