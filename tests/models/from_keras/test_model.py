"""Whole Keras models: what becomes of their graphs, their names, their modes and their weights."""

import pickle
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

from drivetrain.core.errors import BadInputError
from drivetrain.models.from_keras.kept_layer import KeptLayer
from drivetrain.models.from_keras.model import give_weights_back, lower_model
from tests.keras_models import CLASSES, SIDE, as_torch, images_of, little_cnn, moved_statistics, real_keras

IMAGE_SHAPE = (3, SIDE, SIDE)


@pytest.fixture
def keras() -> Any:
    return real_keras()


def probabilities(module: torch.nn.Module, images: np.ndarray[Any, Any]) -> torch.Tensor:
    with torch.no_grad():
        made: torch.Tensor = module.eval()(as_torch(images)).softmax(1)
    return made


def test_names_modes_and_settings_are_those_of_the_layers(keras: Any) -> None:
    module = lower_model(little_cnn(keras, dropout=0.3), sample_shape=IMAGE_SHAPE).module
    assert set(dict(module.named_children())) == {
        "first", "norm", "max_pooling2d", "second", "flatten", "dropout", "last", "log_probabilities"
    }  # fmt: skip
    norm = module.get_submodule("norm")
    assert isinstance(norm, torch.nn.BatchNorm2d)
    assert norm.momentum == pytest.approx(0.2)
    assert norm.eps == 0.002
    assert isinstance(module.get_submodule("dropout"), torch.nn.Dropout)


def test_a_model_that_is_built_again_has_the_same_names(keras: Any) -> None:
    def build() -> Any:
        layers = keras.layers
        return keras.Sequential(
            [keras.Input((SIDE, SIDE, 3)), layers.Conv2D(2, 3), layers.Conv2D(2, 3), layers.Flatten()]
        )

    names = [set(lower_model(build(), sample_shape=IMAGE_SHAPE).module.state_dict()) for _ in range(2)]
    assert (
        names[0]
        == names[1]
        == {f"{name}.{key}" for name in ("conv2d", "conv2d_1") for key in ("weight", "bias")}
    )
    again = build()
    aliases = lower_model(again, sample_shape=IMAGE_SHAPE).module.layer_aliases
    assert aliases[again.layers[1].name] == "conv2d_1"


def test_probabilities_are_those_of_predict(keras: Any) -> None:
    model = little_cnn(keras)
    moved_statistics(model)
    images = images_of((SIDE, SIDE, 3))
    module = lower_model(model, sample_shape=IMAGE_SHAPE).module
    expected = torch.from_numpy(model.predict(images, verbose=0))
    torch.testing.assert_close(probabilities(module, images), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("activation", ["softmax", None])
def test_the_loss_is_that_of_keras(keras: Any, activation: str | None) -> None:
    model = little_cnn(keras, activation=activation)
    images, labels = images_of((SIDE, SIDE, 3)), np.array([0, 3, 1, 1])
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=activation is None)
    expected = loss(labels, model(images, training=True))
    module = lower_model(model, sample_shape=IMAGE_SHAPE).module.train()
    made = torch.nn.functional.cross_entropy(module(as_torch(images)), torch.from_numpy(labels))
    torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-6)
    torch.autograd.backward([made, expected])
    for link in lower_model(model, sample_shape=IMAGE_SHAPE).links:
        gradient = dict(module.named_parameters()).get(link.name)
        if gradient is not None:
            assert gradient.grad is not None
            torch.testing.assert_close(
                link.to_keras(gradient.grad), link.variable.value.grad, rtol=1e-3, atol=1e-5
            )


def test_certain_probabilities_are_clipped_as_keras_clips_them(keras: Any) -> None:
    from drivetrain.models.from_keras.outputs import LogProbabilities

    certain = torch.tensor([[1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    labels = torch.tensor([1, 0])
    expected = keras.losses.SparseCategoricalCrossentropy(reduction=None)(labels, certain)
    made = torch.nn.functional.cross_entropy(LogProbabilities(1e-7)(certain), labels, reduction="none")
    torch.testing.assert_close(made, expected, rtol=1e-6, atol=0)


def test_one_probability_becomes_two_classes(keras: Any) -> None:
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((SIDE, SIDE, 3)), layers.Flatten(), layers.Dense(1, activation="sigmoid")]
    )
    images, labels = images_of((SIDE, SIDE, 3)), np.array([0, 1, 1, 0])
    module = lower_model(model, sample_shape=IMAGE_SHAPE).module
    made = torch.nn.functional.cross_entropy(module(as_torch(images)), torch.from_numpy(labels))
    expected = keras.losses.BinaryCrossentropy()(labels[:, None].astype("float32"), model(images))
    torch.testing.assert_close(made, expected, rtol=1e-5, atol=1e-6)


def test_weights_go_back_into_the_users_model(keras: Any) -> None:
    model = little_cnn(keras)
    module = lower_model(model, sample_shape=IMAGE_SHAPE).module
    with torch.no_grad():
        for tensor in module.state_dict().values():
            if tensor.is_floating_point():
                tensor.copy_(torch.rand_like(tensor) + 0.1)
    before = [variable.numpy() for variable in model.variables if "seed" in variable.path]
    give_weights_back(model, module)
    images = images_of((SIDE, SIDE, 3))
    expected = torch.from_numpy(model.predict(images, verbose=0))
    torch.testing.assert_close(probabilities(module, images), expected, rtol=1e-5, atol=1e-6)
    after = [variable.numpy() for variable in model.variables if "seed" in variable.path]
    assert all(np.array_equal(one, other) for one, other in zip(before, after, strict=True))


def test_a_frozen_batch_norm_keeps_its_statistics_and_other_frozen_weights_are_not_trained(
    keras: Any,
) -> None:
    model = little_cnn(keras)
    model.get_layer("norm").trainable = False
    model.get_layer("first").trainable = False
    module = lower_model(model, sample_shape=IMAGE_SHAPE).module.train()
    trained = {name for name, weight in module.named_parameters() if weight.requires_grad}
    assert trained == {"second.weight", "second.bias", "last.linear.weight", "last.linear.bias"}
    images = images_of((SIDE, SIDE, 3))
    made = module(as_torch(images)).softmax(1)
    torch.testing.assert_close(made, model(images, training=True), rtol=1e-5, atol=1e-6)


def nested(keras: Any) -> Any:
    layers = keras.layers
    inner = keras.Sequential(
        [keras.Input((SIDE, SIDE, 3)), layers.Conv2D(3, 3, padding="same", name="shared")], name="inner"
    )
    images = keras.Input((SIDE, SIDE, 3))
    hidden = inner(inner(images))
    hidden = layers.Add()([hidden, images * 0.5])
    hidden = layers.GlobalAveragePooling2D()(hidden)
    return keras.Model(images, layers.Dense(CLASSES)(hidden), name="outer")


def test_models_in_models_are_flattened_and_shared_layers_stay_one(keras: Any) -> None:
    model = nested(keras)
    lowering = lower_model(model, sample_shape=IMAGE_SHAPE)
    assert [step.layer for step in lowering.module.steps].count("shared") == 2
    assert sum(weight.numel() for weight in lowering.module.parameters()) == model.count_params()
    images = images_of((SIDE, SIDE, 3))
    expected = model(images, training=False)
    torch.testing.assert_close(lowering.module(as_torch(images)), expected, rtol=1e-5, atol=1e-6)


def subclassed(keras: Any, *, branches: bool) -> Any:
    class Subclassed(keras.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first = keras.layers.Conv2D(4, 3, name="first")
            self.norm = keras.layers.BatchNormalization(name="norm")
            self.last = keras.layers.Dense(CLASSES, name="last")

        def call(self, images: Any, training: bool | None = None) -> Any:
            hidden = self.first(images)
            hidden = hidden if branches and not training else self.norm(hidden, training=training)
            return self.last(keras.ops.mean(hidden, axis=(1, 2)))

    return Subclassed()


@pytest.mark.parametrize("branches", [False, True])
def test_a_model_with_code_of_its_own_is_recorded_or_kept_whole(keras: Any, branches: bool) -> None:
    model = subclassed(keras, branches=branches)
    lowering = lower_model(model, sample_shape=IMAGE_SHAPE)
    module = lowering.module
    kept = [part for part in module.modules() if isinstance(part, KeptLayer)]
    is_whole = any(part._whole.layer is model for part in kept)
    assert is_whole == branches
    images = images_of((SIDE, SIDE, 3))
    for mode in (False, True):
        expected = model(images, training=mode)
        torch.testing.assert_close(
            module.train(mode)(as_torch(images)), expected, rtol=1e-4, atol=1e-5, msg=f"training {mode}"
        )


def test_a_module_can_be_copied_and_sent(keras: Any) -> None:
    layers = keras.layers
    model = keras.Sequential(
        [keras.Input((SIDE, SIDE, 3)), layers.PReLU(), layers.Flatten(), layers.Dense(3)]
    )
    module = lower_model(model, sample_shape=IMAGE_SHAPE).module.eval()
    images = as_torch(images_of((SIDE, SIDE, 3)))
    for other in (deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert torch.equal(other(images), module(images))


REFUSED = {
    "takes inputs of 12x12x3, but the data are 9x9x3": lambda keras: little_cnn(keras),
    "has a regularizer (L2)": lambda keras: keras.Sequential(
        [keras.layers.Flatten(), keras.layers.Dense(2, kernel_regularizer="l2")]
    ),
    "draws random numbers from a generator of its own": lambda keras: keras.Sequential(
        [keras.layers.RandomFlip(), keras.layers.Flatten(), keras.layers.Dense(2)]
    ),
}


@pytest.mark.parametrize("part", REFUSED)
def test_what_cannot_be_trained_is_named(keras: Any, part: str) -> None:
    with pytest.raises(BadInputError) as caught:
        lower_model(REFUSED[part](keras), sample_shape=(3, 9, 9))
    assert part in str(caught.value)


def test_a_loss_that_the_output_does_not_fit_is_named(keras: Any) -> None:
    model = little_cnn(keras, activation=None)
    model.compile("sgd", "sparse_categorical_crossentropy")
    with pytest.raises(BadInputError, match="takes probabilities, but its last layer has no softmax"):
        lower_model(model, sample_shape=IMAGE_SHAPE)
    model.compile("sgd", "mse")
    with pytest.raises(BadInputError, match="the loss mse, which is not available here"):
        lower_model(model, sample_shape=IMAGE_SHAPE)


@pytest.mark.parametrize("shape", [(6,), (3, 8)])
def test_tables_and_signals_go_in_with_their_channels_first(keras: Any, shape: tuple[int, ...]) -> None:
    layers = keras.layers
    in_keras = (*shape[1:], shape[0])
    middle = [layers.Conv1D(4, 3, padding="same"), layers.Flatten()] if len(shape) == 2 else []
    model = keras.Sequential([keras.Input(in_keras), *middle, layers.Dense(CLASSES)])
    samples = images_of(in_keras)
    module = lower_model(model, sample_shape=shape).module
    made = module(torch.from_numpy(samples).movedim(-1, 1))
    torch.testing.assert_close(made, model(samples), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("in_keras", [(SIDE, SIDE), (SIDE * SIDE,)])
def test_grey_images_fit_models_without_channels(keras: Any, in_keras: tuple[int, ...]) -> None:
    layers = keras.layers
    model = keras.Sequential([keras.Input(in_keras), layers.Flatten(), layers.Dense(CLASSES)])
    images = images_of((SIDE, SIDE, 1))
    module = lower_model(model, sample_shape=(1, SIDE, SIDE)).module
    expected = model(images.reshape(len(images), *in_keras))
    torch.testing.assert_close(module(as_torch(images)), expected, rtol=1e-5, atol=1e-6)
