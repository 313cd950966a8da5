"""Whatever the data, the time and the typed options: the decided recipe is valid, and typed options stay."""

from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from drivetrain.auto.case import Case, DeviceFacts
from drivetrain.catalogue.tasks import task_info
from drivetrain.data.fingerprint.fingerprint import Fingerprint
from drivetrain.plan.training_plan import plan_training
from drivetrain.recipe.fields import default_values, option_name, plain_value
from drivetrain.recipe.load import ResolvedRecipe, resolve_recipe
from drivetrain.recipe.messages import COMMAND_LINE, RULES
from tests.auto.fingerprints import ACCELERATOR, CPU, KINDS, FakeTimer, decided, photographs

_TIMES = {"a moment": (1e-5, 5.0), "minutes": (1e-7, 600.0), "hours": (1e-10, 7200.0)}
_TYPED: dict[str, Mapping[str, Any]] = {
    "nothing": {},
    "epochs": {"num_epochs": "3"},
    "updates": {"max_updates": "700"},
    "both lengths": {"max_updates": "7", "num_epochs": "100"},
    "a large batch": {"global_batch_size": "48"},
    "an odd micro-batch": {"micro_batch_size": "7"},
    "accumulation": {"gradient_accumulation_count": "4"},
    "replicas": {"replicas": "2"},
    "replicas and batch": {"replicas": "4", "global_batch_size": "32"},
    "devices": {"devices": "2"},
    "updates per epoch": {"weight_updates_per_epoch": "5"},
    "folds": {"folds": "5", "fold": "0"},
    "share": {"validation_fraction": "0.5"},
    "limits": {"limit_train_samples": "5", "limit_validation_samples": "2"},
    "no validation": {"validation": "False"},
    "sgd": {"optimizer": "sgd"},
    "adam": {"optimizer": "adam"},
    "rmsprop": {"optimizer": "rmsprop"},
    "momentum": {"optimizer_params": "{momentum: 0.8}"},
    "rate": {"learning_rate": "0.3"},
    "initial rate": {"lr_schedule_params": "{initial_learning_rate: 0.001}"},
    "constant rate": {"lr_schedule": "const"},
    "steps": {"lr_schedule": "stepped", "lr_schedule_params": "{boundaries: [2], values: [0.1, 0.01]}"},
    "l2": {"l2_regularization": "0.001"},
    "no augmentation": {"augment": "False"},
    "augmentation": {"augment": "True"},
    "flips": {"random_flips": "none"},
    "usual flips": {"random_flips": "auto"},
    "size": {"image_size": "40"},
    "own size": {"image_size": "none"},
    "colour": {"channels": "3"},
    "normalisation": {"normalisation": "imagenet"},
    "logs": {"log_every": "10"},
    "fewer logs": {"logs_per_epoch": "1/3"},
    "logs of typed epochs": {"num_epochs": "717"},
    "evaluations": {"evaluate_every": "10", "patience": "3"},
    "several": {"logs_per_epoch": "2", "ema": "0.9", "class_weights": ["balanced"], "seed": "3"},
    "precision": {"precision": "16.32", "compile": "off", "remainder": "carry"},
}
_CLASSIFICATION: dict[str, Mapping[str, Any]] = {
    "crops": {"random_resized_crop": "0.5", "num_epochs": "2"},
    "no colours": {"rand_augment": "0"},
    "mixup": {"mixup": "0.4", "num_epochs": "2"},
    "width": {"model_width": "8"},
    **{name: {"model": name} for name in ("resnet50", "cifar_resnet56", "mnist_cnn", "toy_model")},
    "own model": {"model": "my_models:create_net"},
    "width of a model": {"model": "resnet34", "model_width": "16"},
}
_SEGMENTATION: dict[str, Mapping[str, Any]] = {
    "tiles": {"tile_size": "96"},
    "width": {"model_width": "8"},
    "params": {"model_params": "{depth: 2}"},
    "rotate": {"rotate": "0", "gamma": "0"},
    **{name: {"model": name} for name in ("unet", "unet_medical", "unet_same")},
    "own model": {"model": "my_models:create_net"},
}


def _typed_of(found: Fingerprint) -> dict[str, Mapping[str, Any]]:
    dense = task_info(found.task).has_dense_labels
    return _TYPED | (_SEGMENTATION if dense else _CLASSIFICATION)


def _plain(found: Fingerprint, overrides: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The overrides of a command, and the parsed values of the typed options."""
    given = {"dataset": found.dataset, "data_dir": "data", **overrides}
    plain = resolve_recipe(overrides=given)
    typed = {
        field: getattr(plain.recipe, field)
        for field, origin in plain.origins.items()
        if origin == COMMAND_LINE
    }
    return given, typed


def _resolved(given: Mapping[str, Any], case: Case) -> ResolvedRecipe:
    values = {field: decision.value for field, decision in case.decisions.items()}
    return resolve_recipe(overrides=given, decided=values)


def _suits(overrides: Mapping[str, Any], found: Fingerprint) -> bool:
    """Whether plain defaults accept typed options for these data: what contradicts itself needs no rules."""
    return (found.dataset, overrides.get("channels")) != ("cifar10", "3")


@pytest.mark.parametrize("kind", KINDS)
def test_every_decided_recipe_is_valid_and_keeps_what_was_typed(kind: str) -> None:
    """Every kind of data meets every typed option, and each option every time and device among the kinds."""
    found, settings = KINDS[kind], [*product(_TIMES.values(), (CPU, ACCELERATOR))]
    for number, overrides in enumerate(_typed_of(found).values(), start=[*KINDS].index(kind)):
        (pixel_s, left_s), device = settings[number % len(settings)]
        if _suits(overrides, found):
            _check(found, overrides, pixel_s=pixel_s, left_s=left_s, device=device)


def _check(
    found: Fingerprint,
    overrides: Mapping[str, Any],
    *,
    pixel_s: float,
    left_s: float,
    device: DeviceFacts,
) -> None:
    given, typed = _plain(found, overrides)
    case = decided(found, typed, pixel_s=pixel_s, left_s=left_s, device=device)
    resolved = _resolved(given, case)
    plan_training(resolved.recipe, samples=case.epoch_samples)
    for field, value in typed.items():
        assert getattr(resolved.recipe, field) == value, (overrides, field)
    assert not case.decisions.keys() & typed.keys(), overrides
    for field, decision in case.decisions.items():
        assert plain_value(getattr(resolved.recipe, field)) == plain_value(decision.value), (overrides, field)
        assert resolved.origins[field] == RULES, (overrides, field)
        assert decision.reason, (overrides, field)
    idle = [
        warning
        for warning in resolved.warnings
        if any(option_name(field) in warning for field in case.decisions)
    ]
    assert idle == [], overrides


def test_another_value_would_be_found() -> None:
    """The negative control: a recipe without the decisions differs from them."""
    found = photographs()
    given, typed = _plain(found, {})
    case = decided(found, typed)
    assert case.decisions["model"].value != default_values()["model"]
    assert resolve_recipe(overrides=given).recipe.model != case.decisions["model"].value


def test_less_time_chooses_less_work_and_fewer_images() -> None:
    long, short = (decided(photographs(), left_s=left_s) for left_s in (6000.0, 60.0))
    assert long.value("image_size") > short.value("image_size")
    epochs = [
        decided(photographs(), {"model": "resnet18"}, left_s=s).value("num_epochs") for s in (60.0, 2000.0)
    ]
    assert epochs[0] < epochs[1]


def test_the_length_fits_the_time_left() -> None:
    timer = FakeTimer(pixel_s=1e-7)
    case = decided(photographs(), pixel_s=1e-7, left_s=200.0)
    options = {field: decision.value for field, decision in case.decisions.items()}
    assert case.value("num_epochs") * case.train_samples * timer(options) <= 200.0


def test_too_little_time_for_one_epoch_becomes_updates() -> None:
    case = decided(KINDS["huge"], pixel_s=1e-5, left_s=10.0)
    assert case.value("num_epochs") == 1
    assert 1 <= case.value("max_updates") < case.train_samples // case.global_batch
    warmup = case.value("lr_warmup_params")["warmup_epochs"]
    assert 0 < warmup * case.train_samples < case.value("max_updates") * case.global_batch


@pytest.mark.parametrize("model", ["my_models:create_vit", "timm/vit_tiny_patch16_224"])
def test_a_model_alone_gets_a_recipe_that_suits_it(model: str) -> None:
    """The rate that suits SGD on a residual network would destroy a transformer."""
    found = photographs(samples={"train": 100_000}, class_counts=(25_000,) * 4)
    case = decided(found, {"model": model}, pixel_s=1e-9)
    assert case.value("optimizer") == "adamw"
    assert case.value("learning_rate") <= 0.001
    assert case.value("lr_warmup_params")["warmup_epochs"] > 0
    own = decided(found, {"model": "resnet18"}, pixel_s=1e-9)
    assert own.value("optimizer") == "sgd"


def test_the_rate_follows_the_batch() -> None:
    rates = {
        batch: decided(photographs(), {"global_batch_size": batch}).value("learning_rate")
        for batch in (16, 64, 256)
    }
    assert rates == {16: 0.001, 64: 0.002, 256: 0.004}
    assert (
        decided(photographs(), {"global_batch_size": 256, "learning_rate": 0.5}).value("learning_rate") == 0.5
    )


def test_replicas_share_the_batch_of_one_process() -> None:
    alone, shared = decided(photographs()), decided(photographs(), {"replicas": 2})
    assert shared.global_batch == alone.global_batch
    assert shared.value("learning_rate") == alone.value("learning_rate")
    assert shared.value("micro_batch_size") * 2 == alone.value("micro_batch_size")
    assert shared.value("dbn_replica_group_size") == 2


def test_a_typed_length_still_chooses_a_network_that_fits_the_time() -> None:
    few, many = (decided(photographs(), {"num_epochs": epochs}) for epochs in (1, 400))
    assert few.value("image_size") > many.value("image_size")
    assert "num_epochs" not in few.decisions


@pytest.mark.parametrize(
    ("typed", "left_s", "epochs", "updates"),
    [
        ({"max_updates": 700, "logs_per_epoch": "1/3"}, 600.0, 72, 700),
        ({"max_updates": 700}, 600.0, 70, 700),
        # Nine epochs fit the time.
        ({"logs_per_epoch": "1/4", "model": "resnet18"}, 50.0, 8, 80),
        ({"logs_per_epoch": "1/10", "model": "resnet18"}, 50.0, 10, 100),
        ({"logs_per_epoch": "1/90", "model": "resnet18"}, 50.0, 9, 90),
    ],
)
def test_a_typed_pace_neither_shortens_what_was_typed_nor_lengthens_the_training(
    typed: dict[str, Any], left_s: float, epochs: int, updates: int
) -> None:
    found = photographs(samples={"train": 640, "validation": 100})
    case = decided(found, typed, pixel_s=1e-6, left_s=left_s)
    assert case.global_batch == 64
    assert case.value("num_epochs") == epochs
    assert min(epochs * 10, case.value("max_updates") or epochs * 10) == updates
