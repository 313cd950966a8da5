"""`fit` inside a scope against Keras's own `fit`."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.keras_fit.models import CLASSES, classifier, digits, farthest, farthest_state, in_sequence, keras

import drivetrain.keras
from drivetrain.core.errors import BadInputError

# Sums of a few hundred numbers of about 1, in another order.
ROUNDING = 1e-6


def _fitted(inside: bool, make: Callable[[], Any], **arguments: Any) -> tuple[Any, dict[str, list[float]]]:
    """A model after `fit` inside a scope or outside, and its history."""
    given = {"batch_size": 16, "shuffle": False, "verbose": 0, **arguments}
    if not inside:
        model = make()
        return model, model.fit(**given).history
    with drivetrain.keras.scope():
        model = make()
        return model, model.fit(**given).history


def _require_equal(make: Callable[[], Any], **arguments: Any) -> None:
    ours, our_history = _fitted(True, make, **arguments)
    theirs, their_history = _fitted(False, make, **arguments)
    assert farthest(ours, theirs) < ROUNDING
    assert farthest_state(ours, theirs) < ROUNDING
    assert list(our_history) == list(their_history)
    for name, values in their_history.items():
        assert our_history[name] == pytest.approx(values, abs=1e-5), name


_OPTIMISERS: dict[str, Callable[[], Any]] = {
    "sgd": lambda: keras.optimizers.SGD(0.1, momentum=0.9, nesterov=True, weight_decay=0.01),
    "adam": lambda: keras.optimizers.Adam(0.01, amsgrad=True, clipnorm=0.1),
    "adamw": lambda: keras.optimizers.AdamW(0.01, global_clipnorm=0.1),
    "rmsprop": lambda: keras.optimizers.RMSprop(0.01, momentum=0.5, centered=True, clipvalue=0.01),
    "nadam": lambda: keras.optimizers.Nadam(0.01),
    "adamax": lambda: keras.optimizers.Adamax(0.01),
    "adagrad": lambda: keras.optimizers.Adagrad(0.1),
    "adadelta": lambda: keras.optimizers.Adadelta(1.0),
    "ftrl": lambda: keras.optimizers.Ftrl(0.1),
    "lion": lambda: keras.optimizers.Lion(0.01),
    "average": lambda: keras.optimizers.SGD(0.1, use_ema=True, ema_momentum=0.5),
    "schedule": lambda: keras.optimizers.Adam(keras.optimizers.schedules.ExponentialDecay(0.01, 2, 0.5)),
}


@pytest.mark.parametrize("name", _OPTIMISERS)
def test_an_optimizer_moves_weights_as_in_keras(name: str) -> None:
    x, y = digits()
    _require_equal(lambda: classifier(_OPTIMISERS[name]), x=x, y=y)


@pytest.mark.parametrize(
    ("loss", "sparse"),
    [
        ("categorical_crossentropy", False),
        ("sparse_categorical_crossentropy", True),
        ("crossentropy", True),
        ("mse", False),
        (lambda truth, output: abs(truth - output), False),
    ],
    ids=["one-hot", "sparse", "by name", "mse", "own"],
)
def test_a_loss_is_that_of_keras(loss: Any, *, sparse: bool) -> None:
    x, y = digits()
    labels = y.argmax(1) if sparse else y
    _require_equal(lambda: classifier(loss=loss), x=x, y=labels, validation_data=(x[:7], labels[:7]))


def test_a_regularizer_is_part_of_the_loss_and_of_the_gradient() -> None:
    x, y = digits()
    _require_equal(lambda: classifier(regularizer=keras.regularizers.L1L2(0.01, 0.1)), x=x, y=y)


def test_batch_norm_keeps_its_own_statistics() -> None:
    x, y = digits()
    _require_equal(lambda: classifier(has_norm=True), x=x, y=y, epochs=2)


def test_weights_of_samples_and_classes_count_as_in_keras() -> None:
    x, y = digits()
    weights = np.linspace(0.0, 2.0, len(x), dtype=np.float32)
    both = ("accuracy",)
    _require_equal(lambda: classifier(weighted_metrics=list(both)), x=x, y=y, sample_weight=weights)
    _require_equal(classifier, x=x, y=y, class_weight={0: 1.0, 1: 5.0, 2: 0.5})


def test_samples_of_weight_0_change_nothing() -> None:
    """Padding a batch with them gives the sum of the others, divided by the whole batch, as Keras does."""
    x, y = digits(12)
    padded = np.concatenate([x, np.ones_like(x[:4])]), np.concatenate([y, y[:4]])
    weights = np.array([1.0] * 12 + [0.0] * 4, dtype=np.float32)
    _require_equal(lambda: classifier(), x=padded[0], y=padded[1], sample_weight=weights)


def test_validation_split_holds_out_what_keras_holds_out() -> None:
    x, y = digits()
    _require_equal(classifier, x=x, y=y, validation_split=0.3, epochs=3, validation_freq=2)


class _Sequence(keras.utils.PyDataset):  # type: ignore[misc]
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[Any, Any]:
        x, y = digits()
        return x[index * 16 : index * 16 + 16], y[index * 16 : index * 16 + 16]


def _loader() -> Any:
    x, y = map(torch.from_numpy, digits())
    return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=16)


def _generator() -> Iterator[Any]:
    x, y = digits()
    while True:
        for start in range(0, len(x), 16):
            yield x[start : start + 16], y[start : start + 16]


@pytest.mark.parametrize(
    "more",
    [
        lambda: {"x": _loader(), "batch_size": None},
        lambda: {"x": _Sequence(), "batch_size": None},
        lambda: {"x": _generator(), "batch_size": None, "steps_per_epoch": 3},
        lambda: dict(zip(("x", "y"), map(torch.from_numpy, digits()), strict=True)),
        lambda: {**dict(zip(("x", "y"), digits(), strict=True)), "steps_per_epoch": 2},
    ],
    ids=["loader", "sequence", "generator", "tensors", "fewer steps"],
)
def test_every_kind_of_data_gives_the_batches_of_keras(more: Callable[[], dict[str, Any]]) -> None:
    ours, our_history = _fitted(True, classifier, epochs=2, **more())
    theirs, their_history = _fitted(False, classifier, epochs=2, **more())
    assert farthest(ours, theirs) < ROUNDING
    assert our_history["loss"] == pytest.approx(their_history["loss"], abs=1e-5)


class _Iterated:
    """Batches without a length, as often as they are asked for."""

    def __iter__(self) -> Iterator[Any]:
        x, y = digits()
        return ((x[start : start + 16], y[start : start + 16]) for start in range(0, len(x), 16))


def test_what_yields_batches_again_and_again_gives_those_of_arrays() -> None:
    x, y = digits()
    theirs, their_history = _fitted(False, classifier, x=x, y=y, epochs=2)
    ours, our_history = _fitted(True, classifier, x=_Iterated(), batch_size=None, epochs=2)
    assert farthest(ours, theirs) < ROUNDING
    assert our_history["loss"] == pytest.approx(their_history["loss"], abs=1e-5)
    with drivetrain.keras.scope():
        assert ours.evaluate(_Iterated(), verbose=0) == pytest.approx(theirs.evaluate(x, y, verbose=0))
        assert np.array_equal(ours.predict(_Iterated(), verbose=0), ours.predict(x, batch_size=16, verbose=0))


def test_shuffled_epochs_take_every_sample_once_in_orders_of_the_seed() -> None:
    x, y = digits()
    weights = []
    for seed in (1, 1, 2):
        with drivetrain.keras.scope(seed=seed):
            model = classifier()
            model.fit(x, y, batch_size=16, epochs=2, verbose=0)
            weights.append(np.concatenate([part.ravel() for part in model.get_weights()]))
    assert np.array_equal(weights[0], weights[1])
    assert not np.array_equal(weights[0], weights[2])


class _Notes(keras.callbacks.Callback):  # type: ignore[misc]
    """Writes down every call of a callback."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[Any] = []

    def on_train_begin(self, logs: Any = None) -> None:
        self.calls.append("train begins")

    def on_train_end(self, logs: Any = None) -> None:
        self.calls.append(("train ends", sorted(logs)))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.calls.append(("epoch begins", epoch))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.calls.append(("epoch ends", epoch, sorted(logs)))

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("batch begins", batch))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("batch ends", batch, sorted(logs)))

    def on_test_begin(self, logs: Any = None) -> None:
        self.calls.append("test begins")

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("test batch ends", batch, sorted(logs)))

    def on_test_end(self, logs: Any = None) -> None:
        self.calls.append(("test ends", sorted(logs)))


def test_callbacks_are_called_as_keras_calls_them() -> None:
    x, y = digits()
    notes = [_Notes(), _Notes()]
    for inside, note in zip((True, False), notes, strict=True):
        _fitted(inside, classifier, x=x, y=y, validation_data=(x, y), epochs=2, callbacks=[note])
    assert notes[0].calls == notes[1].calls


def test_an_execution_is_several_steps_for_callbacks() -> None:
    x, y = digits()
    note = _Notes()
    with drivetrain.keras.scope():
        model = classifier(steps_per_execution=2)
        model.fit(x, y, batch_size=8, verbose=0, callbacks=[note])
        assert model.steps_per_execution == 1
    assert [call[1] for call in note.calls if call[0] == "batch begins"] == [0, 2, 4]
    assert [call[1] for call in note.calls if call[0] == "batch ends"] == [1, 3, 4]


class _Halves(keras.callbacks.Callback):  # type: ignore[misc]
    """Changes weights and the rate between epochs."""

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.model.set_weights([weight / 2 for weight in self.model.get_weights()])
        self.model.optimizer.learning_rate = 0.5


def test_what_callbacks_change_is_taken_over() -> None:
    x, y = digits()
    _require_equal(classifier, x=x, y=y, epochs=3, callbacks=[_Halves()])


def test_callbacks_of_keras_work(tmp_path: Path) -> None:
    x, y = digits()

    def callbacks() -> list[Any]:
        kinds = keras.callbacks
        return [
            kinds.EarlyStopping("loss", patience=1, min_delta=1.0, restore_best_weights=True),
            kinds.ReduceLROnPlateau("loss", patience=1, min_delta=1.0),
            kinds.CSVLogger(tmp_path / "log.csv"),
            kinds.ModelCheckpoint(tmp_path / "model.keras"),
            kinds.LearningRateScheduler(lambda epoch, rate: rate if epoch < 1 else 0.05),
        ]

    ours, our_history = _fitted(True, classifier, x=x, y=y, epochs=9, callbacks=callbacks())
    theirs, their_history = _fitted(False, classifier, x=x, y=y, epochs=9, callbacks=callbacks())
    assert our_history.keys() == their_history.keys()
    assert len(our_history["loss"]) == len(their_history["loss"]) < 9
    assert farthest(ours, theirs) < ROUNDING
    assert len((tmp_path / "log.csv").read_text().splitlines()) > 1
    assert keras.saving.load_model(tmp_path / "model.keras").optimizer.iterations.numpy() > 0


def test_a_fit_outside_of_the_scope_goes_on_from_a_fit_inside() -> None:
    x, y = digits()
    models = [classifier("adam"), classifier("adam")]
    with drivetrain.keras.scope():
        models[0].fit(x, y, batch_size=16, shuffle=False, verbose=0)
        models[0].fit(x, y, batch_size=16, shuffle=False, verbose=0)
    models[0].fit(x, y, batch_size=16, shuffle=False, verbose=0)
    for _ in range(3):
        models[1].fit(x, y, batch_size=16, shuffle=False, verbose=0)
    assert farthest(*models) < ROUNDING
    assert farthest_state(*models) < ROUNDING
    assert models[0].optimizer.iterations.numpy() == 9


def test_a_saved_model_is_the_trained_one(tmp_path: Path) -> None:
    x, y = digits()
    with drivetrain.keras.scope():
        model = classifier("adam")
        model.fit(x, y, batch_size=16, verbose=0)
        predicted = model.predict(x, verbose=0)
        model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert farthest(model, loaded) == 0
    assert np.abs(loaded.predict(x, verbose=0) - predicted).max() < ROUNDING


def _shown(lines: str) -> list[str]:
    """The names of the last state of a progress line; how often it is drawn depends on the machine."""
    return [part.split(":")[0].strip() for part in lines.rstrip().split("step")[-1].split(" - ")]


def test_evaluate_returns_what_keras_returns(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = digits()
    model = classifier()
    wanted = model.evaluate(x, y, batch_size=16)
    their_lines = capsys.readouterr().out
    with drivetrain.keras.scope():
        found = model.evaluate(x, y, batch_size=16)
        our_lines = capsys.readouterr().out
        model.compile("sgd", "categorical_crossentropy", metrics=["accuracy"], steps_per_execution=3)
        again = model.evaluate(x, y, batch_size=16, verbose=0)
        by_name = model.evaluate(x, y, batch_size=16, verbose=0, return_dict=True)
    assert found == pytest.approx(wanted)
    assert again == pytest.approx(wanted)
    assert list(by_name) == ["accuracy", "loss"]
    assert "3/3" in our_lines
    assert _shown(our_lines) == _shown(their_lines)


def test_a_models_own_methods_are_left_alone() -> None:
    class Own(keras.Sequential):  # type: ignore[misc]
        def fit(self, *_args: Any, **_kwargs: Any) -> str:
            return "own"

    with drivetrain.keras.scope():
        assert Own().fit() == "own"
    assert "fit" not in vars(keras.Model)
    assert not hasattr(keras.Model, "set_stages")


def test_progress_lines_show_the_steps_of_keras(capsys: pytest.CaptureFixture[str]) -> None:
    x, y = digits()
    with drivetrain.keras.scope(gradient_accumulation=2):
        classifier().fit(x, y, batch_size=16, epochs=2)
    lines = capsys.readouterr().out
    assert "1 replica x 2 micro-batches of 8 samples = 16 samples per weight update" in lines
    assert "Epoch 2/2" in lines
    assert "3/3" in lines


def test_accumulation_changes_nothing() -> None:
    x, y = digits()
    whole, _ = _fitted(True, classifier, x=x, y=y)
    with drivetrain.keras.scope(gradient_accumulation=4):
        model = classifier()
        model.fit(x, y, batch_size=16, shuffle=False, verbose=0)
    assert farthest(whole, model) < ROUNDING


def test_a_broken_update_is_noticed() -> None:
    """The control of the comparisons above: another rate gives other weights."""
    x, y = digits()
    ours, _ = _fitted(True, lambda: classifier(lambda: keras.optimizers.SGD(0.01)), x=x, y=y)
    theirs, _ = _fitted(False, lambda: classifier(lambda: keras.optimizers.SGD(0.0101)), x=x, y=y)
    assert farthest(ours, theirs) > ROUNDING


def _mean_of_a_batch(truth: Any, output: Any) -> Any:
    return ((truth - output) ** 2).mean()


class _OwnPenalty(keras.regularizers.Regularizer):  # type: ignore[misc]
    def __call__(self, weight: Any) -> Any:
        return keras.ops.sum(weight**4)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: classifier(lambda: keras.optimizers.Lamb()), "Lamb cannot be used"),
        (
            lambda: classifier(lambda: keras.optimizers.SGD(gradient_accumulation_steps=2)),
            "gradient_accumulation=2",
        ),
        (lambda: classifier(loss=keras.losses.MeanSquaredError(reduction="sum")), "sum_over_batch_size"),
        (
            lambda: classifier(loss=lambda truth, output: ((truth - output) ** 2).mean()),
            "one value per sample",
        ),
        (lambda: classifier(regularizer=_OwnPenalty()), "L1, L2 and L1L2"),
    ],
)
def test_what_cannot_be_trained_is_refused(make: Callable[[], Any], words: str) -> None:
    x, y = digits()
    with drivetrain.keras.scope(), pytest.raises(BadInputError, match=words):
        make().fit(x, y, batch_size=16, verbose=0)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"replicas": 0}, "replicas=0 must be a whole number"),
        ({"schedule": "grouped1"}, "Did you mean grouped"),
        ({"replicas": 3}, "batch_size=15 or 18"),
        ({"devices": 3, "stages": 2}, "devices=2 or 4"),
        ({"devices": 4, "stages": 2, "replicas": 4}, "makes 2 replicas"),
    ],
)
def test_a_layout_that_does_not_fit_is_refused(arguments: dict[str, Any], words: str) -> None:
    x, y = digits()
    with pytest.raises(BadInputError, match=words), drivetrain.keras.scope(**arguments):
        classifier().fit(x, y, batch_size=16, verbose=0)


def test_a_scope_in_a_scope_is_refused() -> None:
    with drivetrain.keras.scope():
        with pytest.raises(BadInputError, match="inside another"), drivetrain.keras.scope():
            pass
        in_sequence()


@pytest.mark.parametrize("as_batches", [False, True], ids=["arrays", "batches"])
@pytest.mark.parametrize("loss", ["sparse_categorical_crossentropy", "crossentropy"])
def test_labels_that_the_model_has_no_output_for_are_refused(loss: str, *, as_batches: bool) -> None:
    x, y = digits()
    classes = y.argmax(1)
    for moved, words in ((classes + 1, "largest label is 3, but .* 3 outputs"), (classes - 1, "label is -1")):
        tensors = map(torch.from_numpy, (x, moved))
        loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*tensors), batch_size=16)
        data: dict[str, Any] = {"x": loader} if as_batches else {"x": x, "y": moved}
        with drivetrain.keras.scope():
            for method in (classifier(loss=loss).fit, classifier(loss=loss).evaluate):
                with pytest.raises(BadInputError, match=words):
                    method(**data, verbose=0)


def test_a_class_that_a_loss_ignores_is_no_label() -> None:
    x, y = digits()
    loss = keras.losses.SparseCategoricalCrossentropy(ignore_class=-1)
    labels = np.where(np.arange(len(x)) % 2, y.argmax(1), -1)
    with drivetrain.keras.scope():
        assert np.isfinite(classifier(loss=loss, metrics=None).fit(x, labels, verbose=0).history["loss"][0])


def test_errors_of_keras_stay_errors() -> None:
    x, y = digits()
    with drivetrain.keras.scope():
        model = classifier()
        with pytest.raises(ValueError, match="class_weight"):
            model.fit(x, y, class_weight={0: 1.0}, sample_weight=np.ones(len(x)), verbose=0)
        with pytest.raises(ValueError, match="shape"):
            classifier(loss="sparse_categorical_crossentropy").fit(x, y[:, :2], batch_size=16, verbose=0)
        with pytest.raises(ValueError, match="compile"):
            in_sequence().fit(x, y)
    assert y.shape[1] == CLASSES
