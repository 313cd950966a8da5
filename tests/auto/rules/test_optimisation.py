"""Optimiser, decay, rate, warm-up, class weights and the average."""

from typing import Any

import pytest

from drivetrain.auto.rules.optimisation import decide_optimisation
from drivetrain.data.fingerprint.fingerprint import Fingerprint
from tests.auto.fingerprints import KINDS, case_of, photographs


def _values(
    found: Fingerprint, *, model: str = "resnet18", epochs: int = 50, updates: int = 1000, **typed: Any
) -> dict[str, Any]:
    case = case_of(found, {"micro_batch_size": 64, **typed})
    case.decide("model", model, "")
    decide_optimisation(case, epochs=epochs, passes=epochs, updates=updates)
    return {field: decision.value for field, decision in case.decisions.items()}


def test_sgd_for_batch_norm_and_many_images() -> None:
    many = _values(KINDS["huge"])
    assert (many["optimizer"], many["optimizer_params"]) == ("sgd", {"momentum": 0.9, "nesterov": True})
    assert (many["l2_regularization"], many["learning_rate"]) == (0.0005, 0.05)
    assert "weight_decay" not in many
    few = _values(KINDS["photographs"])
    assert (few["optimizer"], few["weight_decay"], few["learning_rate"]) == ("adamw", 0.05, 0.002)
    assert "l2_regularization" not in few
    for other in ({"model": "mnist_cnn"}, {"epochs": 9}):
        assert _values(KINDS["huge"], **other)["optimizer"] == "adamw"


@pytest.mark.parametrize(
    ("typed", "expected"),
    [
        ({"optimizer": "sgd"}, {"l2_regularization": 0.0005, "learning_rate": 0.05}),
        ({"optimizer": "adam"}, {"learning_rate": 0.002}),
        ({"optimizer": "rmsprop"}, {"learning_rate": 0.002}),
        ({"optimizer": "lars"}, {"learning_rate": 0.1}),
        ({"optimizer": "adamw", "l2_regularization": 0.1}, {"learning_rate": 0.002}),
        ({"global_batch_size": 256}, {"optimizer": "adamw", "learning_rate": 0.004, "weight_decay": 0.05}),
        ({"optimizer": "sgd", "global_batch_size": 256}, {"l2_regularization": 0.0005, "learning_rate": 0.2}),
    ],
)
def test_the_rest_follows_what_was_typed(typed: dict[str, Any], expected: dict[str, Any]) -> None:
    values = _values(KINDS["photographs"], **typed)
    names = ("optimizer", "learning_rate", "weight_decay", "l2_regularization")
    assert {name: values[name] for name in names if name in values} == expected


def test_typed_parameters_choose_the_optimiser() -> None:
    assert _values(KINDS["photographs"], optimizer_params={"momentum": 0.8})["optimizer"] == "sgd"
    assert _values(KINDS["huge"], optimizer_params={"beta1": 0.8})["optimizer"] == "adamw"


def test_warm_up_is_a_tenth_and_at_most_five_epochs() -> None:
    lengths = {
        epochs: _values(KINDS["photographs"], epochs=epochs)["lr_warmup_params"]["warmup_epochs"]
        for epochs in (1, 20, 500)
    }
    assert lengths == {1: 0.1, 20: 2.0, 500: 5.0}
    assert "lr_warmup_params" not in _values(KINDS["photographs"], lr_schedule="const")


def test_unbalanced_classes_are_weighted() -> None:
    assert _values(KINDS["unbalanced"])["class_weights"] == ("balanced",)
    for counts in ((200, 200, 200, 200), (400, 100, 150, 150), (400, 400, 0, 0)):
        assert "class_weights" not in _values(photographs(class_counts=counts))
    assert "class_weights" not in _values(KINDS["masks"], model="unet_same")


@pytest.mark.parametrize(
    ("updates", "decay"), [(499, None), (500, 0.98), (5000, 0.99), (50_000, 0.999), (10**7, 0.9999)]
)
def test_the_average_spans_a_small_part_of_the_training(updates: int, decay: float | None) -> None:
    assert _values(KINDS["photographs"], updates=updates).get("ema") == decay


def test_updates_of_few_images_with_masks_have_many_pixels() -> None:
    rates = {
        batch: _values(KINDS["masks"], model="unet_same", micro_batch_size=batch)["learning_rate"]
        for batch in (2, 8, 32)
    }
    assert rates == {2: 0.0005, 8: 0.001, 32: 0.002}
    trained = _values(KINDS["masks"], model="unet_same", micro_batch_size=8, init_from="weights")
    assert trained["learning_rate"] == 0.0005
