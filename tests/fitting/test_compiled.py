"""Trainings of compiled Keras models: their optimiser is used, and their weights come back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import drivetrain
from drivetrain.run.train import RunResult
from tests.keras_models import CLASSES, SIDE, as_torch, images_of, little_cnn, real_keras

SAMPLES, BATCH = 32, 8


@pytest.fixture
def keras() -> Any:
    return real_keras()


def labelled() -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    return images_of((SIDE, SIDE, 3), samples=SAMPLES), np.arange(SAMPLES) % CLASSES


def train(model: Any, folder: Path, **options: Any) -> RunResult:
    return drivetrain.train(
        model=model,
        data=labelled(),
        num_epochs=1,
        global_batch_size=BATCH,
        micro_batch_size=BATCH,
        output_dir=str(folder / "run"),
        quiet=True,
        **options,
    )


def test_a_compiled_model_is_trained_with_its_optimiser_and_predicts_with_the_result(
    keras: Any, tmp_path: Path
) -> None:
    model = little_cnn(keras)
    model.compile(keras.optimizers.RMSprop(0.002, rho=0.8), "sparse_categorical_crossentropy")
    before = model.get_weights()
    result = train(model, tmp_path)
    plan = (tmp_path / "run" / "recipe.yaml").read_text()
    assert "optimizer: rmsprop" in plan
    assert "rho: 0.8" in plan
    assert "learning_rate: 0.002" in plan
    assert not any(np.array_equal(one, other) for one, other in zip(before, model.get_weights(), strict=True))
    with torch.no_grad():
        ours = result.model.eval()(as_torch(labelled()[0])).softmax(1).numpy()
    np.testing.assert_allclose(model.predict(labelled()[0], verbose=0), ours, rtol=1e-5, atol=1e-6)


def test_keras_and_the_engine_make_the_same_update(keras: Any, tmp_path: Path) -> None:
    """One update over all samples, from the same weights; Keras's own `fit` is the reference."""
    ours, theirs = little_cnn(keras), little_cnn(keras)
    start = theirs.get_weights()
    for model in (ours, theirs):
        model.compile(keras.optimizers.SGD(0.1, momentum=0.9), "sparse_categorical_crossentropy")
    images, labels = labelled()
    theirs.fit(images, labels, batch_size=SAMPLES, epochs=1, shuffle=False, verbose=0)
    drivetrain.train(
        model=ours,
        data=(images, labels),
        num_epochs=1,
        global_batch_size=SAMPLES,
        micro_batch_size=SAMPLES,
        output_dir=str(tmp_path / "run"),
        quiet=True,
    )
    moved = [np.abs(after - before).max() for after, before in zip(theirs.get_weights(), start, strict=True)]
    assert min(moved) > 1e-5
    for name, one, other in zip(
        [weight.path for weight in ours.weights], ours.get_weights(), theirs.get_weights(), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6, err_msg=name)


def test_options_come_before_compile_and_that_is_said(
    keras: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = little_cnn(keras)
    model.compile("adam", "sparse_categorical_crossentropy")
    drivetrain.train(
        model=model,
        data=labelled(),
        num_epochs=1,
        global_batch_size=BATCH,
        micro_batch_size=BATCH,
        output_dir=str(tmp_path / "run"),
        optimizer="sgd",
        learning_rate=0.01,
    )
    assert "optimizer: sgd" in (tmp_path / "run" / "recipe.yaml").read_text()
    printed = capsys.readouterr()
    assert "the optimiser that the Keras model was compiled with is not used" in " ".join(
        (printed.out + printed.err).split()
    )


def test_a_run_goes_on_with_a_model_that_is_built_again(keras: Any, tmp_path: Path) -> None:
    train(little_cnn(keras), tmp_path)
    again = little_cnn(keras)
    result = drivetrain.train(
        model=again,
        data=labelled(),
        num_epochs=2,
        global_batch_size=BATCH,
        micro_batch_size=BATCH,
        output_dir=str(tmp_path / "run"),
        quiet=True,
    )
    assert result.updates == 2 * SAMPLES // BATCH
