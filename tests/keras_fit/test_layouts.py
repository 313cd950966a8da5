"""Replicas and stages of Keras models against one process; the ranks are processes."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.deadlines import HANG_S
from tests.keras_fit.models import CLASSES, classifier, digits, farthest, farthest_state, in_sequence, keras

import drivetrain.keras
from drivetrain.core.errors import BadInputError
from drivetrain.keras_fit.rank_sessions import RankProcesses
from drivetrain.keras_fit.settings import ScopeSettings
from drivetrain.keras_fit.stages import layout_of
from drivetrain.ranks.pool import RankPool

ROUNDING = 1e-6


class _LastingProcesses(RankProcesses):
    """Processes that stay for the next test, unless one fails: starting them takes most of the time."""

    def of(self, ranks: int, *, needs_main: bool) -> RankPool:
        if self._pool is not None and self._pool.size != ranks:
            self.end()
        return super().of(ranks, needs_main=needs_main)

    def close(self) -> None:
        if sys.exc_info()[0] is not None:
            self.end()

    def end(self) -> None:
        RankProcesses.close(self)


@pytest.fixture(scope="module", autouse=True)
def lasting_processes() -> Iterator[None]:
    """All scopes of this file use the same processes; the scripts at its end start their own."""
    processes = _LastingProcesses("auto")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("drivetrain.keras_fit.scope.RankProcesses", lambda _device: processes)
        yield
    processes.end()


@pytest.fixture(scope="module")
def alone() -> tuple[Any, dict[str, list[float]]]:
    """A model trained in one process, and its history."""
    return _trained(keras.optimizers.Adam(0.01))


def _trained(optimizer: Any, **scope: Any) -> tuple[Any, dict[str, list[float]]]:
    x, y = digits()
    with drivetrain.keras.scope(seed=3, **scope):
        model = classifier(lambda: optimizer)
        history = model.fit(x, y, batch_size=16, epochs=2, verbose=0, validation_data=(x, y))
    return model, history.history


@pytest.mark.parametrize(
    "layout",
    [
        {"devices": 4, "stages": 2, "gradient_accumulation": 4, "schedule": drivetrain.keras.Grouped},
        {"replicas": 2},
        {"stages": 2, "gradient_accumulation": 4, "schedule": "Interleaved"},
    ],
    ids=["both", "replicas", "stages"],
)
def test_a_layout_gives_the_weights_of_one_process(
    layout: dict[str, Any], alone: tuple[Any, dict[str, list[float]]]
) -> None:
    model, history = _trained(keras.optimizers.Adam(0.01), **layout)
    assert farthest(model, alone[0]) < ROUNDING
    assert farthest_state(model, alone[0]) < ROUNDING
    assert history.keys() == alone[1].keys()
    for name, values in alone[1].items():
        assert history[name] == pytest.approx(values, abs=1e-5), name


def test_clipping_sees_the_gradient_of_all_stages() -> None:
    clipped = [
        _trained(keras.optimizers.SGD(1.0, global_clipnorm=0.01), **layout)[0]
        for layout in ({}, {"stages": 2, "gradient_accumulation": 2})
    ]
    assert farthest(*clipped) < ROUNDING
    assert farthest(clipped[0], _trained(keras.optimizers.SGD(1.0))[0]) > ROUNDING


def test_ranks_stay_for_the_next_fit_and_take_batches_and_changed_weights() -> None:
    x, y = digits()
    models = []
    for replicas in (1, 2):
        with drivetrain.keras.scope(seed=3, replicas=replicas):
            model = classifier("adam")
            model.fit(_batches(x, y), verbose=0)
            model.set_weights([weight / 2 for weight in model.get_weights()])
            model.fit(x, y, batch_size=16, verbose=0, callbacks=[_Halves()], epochs=2)
            models.append(model)
    assert farthest(*models) < ROUNDING


def _batches(x: Any, y: Any) -> Any:
    from torch.utils.data import DataLoader, TensorDataset

    return DataLoader(TensorDataset(*map(keras.ops.convert_to_tensor, (x, y))), batch_size=16)


class _Halves(keras.callbacks.Callback):  # type: ignore[misc]
    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.set_weights([weight / 2 for weight in self.model.get_weights()])


def test_batch_norm_in_stages_needs_whole_micro_batches() -> None:
    x, y = digits()
    with (
        drivetrain.keras.scope(stages=2, gradient_accumulation=4),
        pytest.raises(BadInputError, match=r"batch normalisation .* drop the last 2 samples"),
    ):
        classifier(has_norm=True).fit(x[:38], y[:38], batch_size=16, verbose=0)


def _marked() -> Any:
    layers = keras.layers
    images = keras.Input((8, 8, 1))
    with drivetrain.keras.PipelineStage(0):
        values = layers.Conv2D(4, 3, name="first")(images)
    with drivetrain.keras.stage(1):
        values = layers.Flatten(name="flat")(layers.MaxPooling2D(2, name="pool")(values))
        return keras.Model(images, layers.Dense(CLASSES, activation="softmax", name="last")(values))


def test_stages_are_named_while_layers_are_made_or_afterwards() -> None:
    with drivetrain.keras.scope():
        assert layout_of(_marked(), ScopeSettings()).stages == 2
        model = in_sequence()
        model.set_stages({"first": 0, model.layers[1]: 1, "last": 2})
        assert layout_of(model, ScopeSettings()).stages == 3
        model.set_pipeline_stage_assignment([0, 0, 0, 1])
        model.set_pipelining_options(
            gradient_accumulation_steps_per_replica=8, pipeline_schedule=drivetrain.keras.Grouped
        )
        layout = layout_of(model, ScopeSettings(devices=4))
        assert (layout.stages, layout.replicas, layout.accumulation) == (2, 2, 8)
        assert layout.schedule == "grouped"


def test_models_inside_a_model_are_assigned_with_their_layers() -> None:
    with drivetrain.keras.scope():
        inner = keras.Sequential([keras.Input((8, 8, 1)), keras.layers.Flatten()], name="inner")
        images = keras.Input((8, 8, 1))
        outer = keras.Model(images, keras.layers.Dense(CLASSES, name="after")(inner(images)))
        outer.set_stages({"inner": 0, "after": 1})
        assert layout_of(outer, ScopeSettings()).stages == 2


@pytest.mark.parametrize(
    ("assign", "words"),
    [
        (lambda model: model.set_stages({"fist": 0}), "no layer fist. Did you mean first"),
        (lambda model: model.set_stages({"first": -1}), "whole number from 0"),
        (lambda model: model.set_pipeline_stage_assignment([0, 1]), "has 4 layers"),
    ],
)
def test_an_assignment_that_does_not_fit_is_refused(assign: Any, words: str) -> None:
    with drivetrain.keras.scope(), pytest.raises(BadInputError, match=words):
        assign(in_sequence())


def test_a_scope_must_agree_with_the_marks_of_a_model() -> None:
    with drivetrain.keras.scope(), pytest.raises(BadInputError, match="stages=2 works"):
        layout_of(_marked(), ScopeSettings(stages=3))


def test_stages_that_were_marked_train_as_one_process_does() -> None:
    x, y = digits()
    models = []
    for stages in (1, 2):
        with drivetrain.keras.scope(seed=3, gradient_accumulation=4):
            keras.utils.set_random_seed(1)
            model = _marked() if stages == 2 else _like_marked()
            model.compile("sgd", "categorical_crossentropy")
            model.fit(x, y, batch_size=16, verbose=0)
            models.append(model)
    assert farthest(*models) < ROUNDING


def _like_marked() -> Any:
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((8, 8, 1)),
            layers.Conv2D(4, 3),
            layers.MaxPooling2D(2),
            layers.Flatten(),
            layers.Dense(CLASSES, activation="softmax"),
        ]
    )


_SCRIPT = """
import os
os.environ["KERAS_BACKEND"] = "torch"
import keras, numpy as np, drivetrain.keras
def own(truth, output): return (truth - output) ** 2
def train(loss):
    x, y = np.ones((8, 4), "float32"), np.ones((8, 1), "float32")
    with drivetrain.keras.scope(replicas=2):
        model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
        model.compile("sgd", loss)
        model.fit(x, y, batch_size=4, verbose=0)
    print("trained", int(model.optimizer.iterations.value))
"""


@pytest.mark.parametrize(
    ("call", "words"),
    [
        ("train('mse'); train(own)", "under `if __name__ == '__main__':`"),
        ("if __name__ == '__main__': train(own)", ""),
    ],
    ids=["no guard", "guard"],
)
def test_a_script_needs_a_main_guard_only_for_its_own_code(call: str, words: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(_SCRIPT + call)
    ended = subprocess.run(
        [sys.executable, str(script)],
        capture_output=True,
        text=True,
        timeout=HANG_S,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        check=False,
    )
    assert ended.stdout.count("trained 2") == 1
    assert words in ended.stderr
    assert (ended.returncode == 0) == (not words)
