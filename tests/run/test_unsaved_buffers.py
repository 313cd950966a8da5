"""Buffers that a model does not save and its training moves: a run goes on with them, bit for bit."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import drivetrain
from drivetrain.models.module_values import places_of
from drivetrain.store.checkpoint import load_checkpoint, save_checkpoint
from tests.pipeline.moving_models import LAYERS, WithState
from tests.run.moving_models import Moving, WithExtraState, WithExtraTensor
from tests.run.small_training import final_files

pytestmark = pytest.mark.usefixtures("no_pictures")

OPTIONS: dict[str, Any] = {
    "micro_batch_size": 8,
    "num_epochs": 100,
    "lr_schedule": "const",
    "learning_rate": 0.1,
    "validation_fraction": 0.25,
    "device": "cpu",
    "quiet": True,
}


def _data() -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    return generator.integers(0, 256, (40, 8, 8, 1), dtype=np.uint8), np.arange(40) % 10


def _model() -> Moving:
    torch.manual_seed(5)
    return Moving()


def _train(path: Path, updates: int, **options: Any) -> tuple[Moving, drivetrain.RunResult]:
    model = _model()
    given = {**OPTIONS, "max_updates": updates, "output_dir": str(path), **options}
    return model, drivetrain.train(model=model, data=_data(), **given)


@pytest.mark.parametrize("options", [{}, {"ema": 0.9}], ids=["plain", "averaged"])
def test_a_run_goes_on_with_them(tmp_path: Path, options: dict[str, Any]) -> None:
    straight, _ = _train(tmp_path / "straight", 6, **options)
    _train(tmp_path / "stopped", 3, **options)
    model, _ = _train(tmp_path / "stopped", 6, **options)
    assert final_files(tmp_path / "stopped") == final_files(tmp_path / "straight")
    assert torch.equal(model.unsaved, straight.unsaved)
    assert model.unsaved.abs().sum() > 0


def _train_layer(path: Path, layer: str, updates: int, **options: Any) -> WithState:
    model = WithState(layer, channels=1)
    given = {**OPTIONS, "max_updates": updates, "output_dir": str(path), **options}
    drivetrain.train(model=model, data=_data(), **given)
    return model


@pytest.mark.parametrize("layer", sorted(LAYERS.keys() - {"collection", "view"}))
def test_a_run_goes_on_with_every_kind_of_state(tmp_path: Path, layer: str) -> None:
    straight = _train_layer(tmp_path / "straight", layer, 6)
    _train_layer(tmp_path / "stopped", layer, 3)
    model = _train_layer(tmp_path / "stopped", layer, 6)
    assert final_files(tmp_path / "stopped") == final_files(tmp_path / "straight")
    assert _values(model) == _values(straight)
    assert _values(model) != _values(WithState(layer, channels=1))


def _values(model: nn.Module) -> dict[str, Any]:
    values = {place.name: place.value for place in places_of(model)}
    return {
        name: value.tolist() if isinstance(value, torch.Tensor) else value for name, value in values.items()
    }


@pytest.mark.parametrize(
    ("layer", "names"),
    [
        ("Python number", {"odd.calls"}),
        ("plain tensor", {"odd.calls"}),
        ("made late", {"odd.mean"}),
        ("buffer in place", None),
        ("parameter", None),
    ],
)
def test_only_what_a_pass_changes_is_stored_beside_the_weights(
    tmp_path: Path, layer: str, names: set[str] | None
) -> None:
    _train_layer(tmp_path / "run", layer, 2)
    path = tmp_path / "run" / "checkpoints" / "2" / "buffers.safetensors"
    assert (set(load_file(path)) if path.exists() else None) == names


def test_state_that_was_not_stored_begins_anew(tmp_path: Path) -> None:
    """As with a checkpoint of an older version; and a check that the number matters."""
    _train_layer(tmp_path / "straight", "Python number", 6)
    _train_layer(tmp_path / "old", "Python number", 3)
    _without_buffers(tmp_path / "old", 3)
    _train_layer(tmp_path / "old", "Python number", 6)
    assert final_files(tmp_path / "old") != final_files(tmp_path / "straight")


def _without_buffers(run: Path, update: int) -> None:
    """Writes a checkpoint again as an older version wrote it."""
    checkpoint = load_checkpoint(run / "checkpoints" / str(update))
    shutil.rmtree(run / "checkpoints" / str(update))
    save_checkpoint(
        run / "checkpoints",
        update=update,
        model=checkpoint.model,
        optimiser=checkpoint.optimiser,
        state=checkpoint.manifest["state"],
    )


def test_the_files_of_the_weights_stay_as_the_model_saves_them(tmp_path: Path) -> None:
    model, _ = _train(tmp_path / "run", 2)
    checkpoint = tmp_path / "run" / "checkpoints" / "2"
    assert load_file(checkpoint / "model.safetensors").keys() == model.state_dict().keys()
    assert load_file(checkpoint / "buffers.safetensors").keys() == {"plain", "unsaved"}


def test_evaluate_measures_what_the_training_measured(tmp_path: Path) -> None:
    images, labels = _data()
    given = {**OPTIONS, "validation_fraction": None, "max_updates": 4, "output_dir": str(tmp_path / "run")}
    result = drivetrain.train(
        model=_model(), data=(images, labels), validation_data=(images[:16], labels[:16]), **given
    )
    (found,) = drivetrain.evaluate(
        tmp_path / "run", model=_model(), data=(images[:16], labels[:16]), device="cpu", compiles="off"
    )
    assert found["loss"] == pytest.approx(result.metrics["validation"]["loss"], rel=1e-6)


def test_a_checkpoint_of_an_older_version_is_loaded_without(tmp_path: Path) -> None:
    _train(tmp_path / "new", 2)
    old = tmp_path / "old"
    shutil.copytree(tmp_path / "new", old)
    _without_buffers(old, 2)
    assert not (old / "checkpoints" / "2" / "buffers.safetensors").exists()
    _, result = _train(old, 3)
    assert (result.status, result.updates) == ("finished", 3)


def _train_extra(model: nn.Module, path: Path, **options: Any) -> drivetrain.RunResult:
    given = {**OPTIONS, "output_dir": str(path), **options}
    return drivetrain.train(model=model, data=_data(), **given)


def test_extra_state_that_is_a_tensor_goes_on(tmp_path: Path) -> None:
    _train_extra(WithExtraTensor(), tmp_path / "run", max_updates=2)
    model = WithExtraTensor()
    _train_extra(model, tmp_path / "run", max_updates=5)
    assert model.calls == 5


@pytest.mark.parametrize(
    ("kind", "options", "says"),
    [
        (WithExtraState, {}, "get_extra_state of module itself returns a dict"),
        (WithExtraState, {"replicas": 2}, "get_extra_state of module itself returns a dict"),
        (WithExtraTensor, {"replicas": 2, "micro_batch_size": 4}, "several ranks cannot share"),
    ],
)
def test_extra_state_that_no_checkpoint_keeps_is_refused_before_anything_is_written(
    tmp_path: Path, kind: type[nn.Module], options: dict[str, Any], says: str
) -> None:
    with pytest.raises(drivetrain.BadInputError, match=says):
        _train_extra(kind(), tmp_path / "run", max_updates=2, **options)
    assert not (tmp_path / "run").exists()


def test_extra_state_of_a_model_by_name_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    options = {"dataset": "digits", "model": "tests.run.moving_models:WithExtraState", "device": "cpu"}
    with pytest.raises(drivetrain.BadInputError, match="returns a dict"):
        drivetrain.train(**options, quiet=True, max_updates=2, output_dir=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
