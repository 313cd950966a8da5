"""The run or cross-validation that a command without --output-dir began before there were rules."""

from pathlib import Path

import pytest

from drivetrain.auto.earlier_run import plain_run
from drivetrain.recipe.layout import batch_of
from drivetrain.recipe.load import ResolvedRecipe, resolve_recipe
from drivetrain.run.request import prepare_request
from drivetrain.store.crossval_directory import choose_job
from tests.data.folders import write_images


def _plain(**options: str) -> ResolvedRecipe:
    named = {"dataset": "image-folder", "data_dir": "photos", "image_size": "8", "micro_batch_size": "4"}
    return resolve_recipe(overrides=named | options)


@pytest.fixture(autouse=True)
def _desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "photos", {"ant": 5, "bee": 5})


def test_there_is_none() -> None:
    assert plain_run(_plain()) is None
    assert plain_run(_plain(folds="2")) is None
    Path("runs/image-folder-cifar_resnet8-12345678").mkdir(parents=True)
    assert plain_run(_plain()) is None


def test_the_run_of_the_same_command_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    path = prepare_request(_plain()).directory.path
    path.mkdir(parents=True)
    monkeypatch.setattr("drivetrain.store.directory.RunDirectory.binds", True)
    monkeypatch.setattr("drivetrain.run.request.Request.check_directory", lambda _: None)
    assert plain_run(_plain()) == path


def test_the_cross_validation_of_the_same_command_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = _plain(folds="2")
    batch = batch_of(plain.recipe).global_batch
    path = choose_job(plain.recipe, name=plain.name, global_batch=batch)[0].path
    monkeypatch.setattr("drivetrain.store.crossval_directory.CrossvalDirectory.holds_job", True)
    monkeypatch.setattr("drivetrain.store.crossval_directory.check_same_identity", lambda *_, **__: None)
    monkeypatch.setattr("drivetrain.store.crossval_directory._stored_identity", lambda _: {})
    assert plain_run(plain) == path
