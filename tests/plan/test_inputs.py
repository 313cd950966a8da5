"""What a plan assumes of data it does not open."""

from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.plan.inputs import PlannedInputs, known_inputs, planned_inputs
from drivetrain.recipe.schema import Recipe
from tests.auto.fingerprints import KINDS


def _inputs(**fields: Any) -> PlannedInputs:
    """The inputs of a recipe whose given fields come from the command line."""
    origins = dict.fromkeys(Recipe.model_fields, "default") | dict.fromkeys(fields, "command line")
    return planned_inputs(Recipe(**fields), origins=origins)


def _shape(inputs: PlannedInputs) -> tuple[int, int, int]:
    return inputs.channels, inputs.image_size, inputs.num_classes


def test_nothing_named_is_the_demonstration() -> None:
    inputs = _inputs()
    assert _shape(inputs) == (1, 8, 10)
    assert inputs.samples == 1797 - 359
    assert inputs.warnings == ()


def test_named_data_set_gives_the_shape() -> None:
    inputs = _inputs(model="mnist_cnn", dataset="mnist")
    assert (_shape(inputs), inputs.samples, inputs.warnings) == ((1, 28, 10), 60000, ())
    assert _shape(_inputs(dataset="synthetic")) == (3, 32, 10)


def test_named_model_alone_has_its_native_shape_and_a_warning() -> None:
    inputs = _inputs(model="cifar_resnet20")
    assert _shape(inputs) == (3, 32, 10)
    (warning,) = inputs.warnings
    assert "cifar_resnet20" in warning
    assert "3x32x32 images and 10 classes" in warning


def test_options_come_before_everything() -> None:
    options = {"channels": 2, "image_size": 64, "num_classes": 7}
    for fields in (
        {},
        {"dataset": "mnist"},
        {"model": "cifar_resnet20"},
        {"dataset": "own.data:make", "dataset_size": 9},
    ):
        inputs = _inputs(**fields, **options)
        assert _shape(inputs) == (2, 64, 7)
        assert inputs.warnings == ()


def test_dataset_size_stands_in_for_a_data_set() -> None:
    assert _inputs(dataset="mnist", dataset_size=50000).samples == 50000
    assert _inputs(dataset="synthetic", dataset_size=300).samples == 300
    assert _inputs(dataset="digits", dataset_size=1000).samples == 1000


def test_an_explicit_share_is_held_out_of_any_size() -> None:
    assert _inputs(dataset="digits", dataset_size=1000, validation_fraction=0.1).samples == 900
    assert _inputs(dataset="digits", validation_fraction=0.0).samples == 1797
    assert _inputs(dataset="mnist", validation_fraction=0.5).samples == 30000
    assert _inputs(dataset="mnist", dataset_size=10, validation_fraction=0.01).samples == 9


def test_share_that_leaves_nothing_is_an_error() -> None:
    with pytest.raises(BadInputError, match="--validation-fraction"):
        _inputs(dataset="mnist", dataset_size=1, validation_fraction=0.5)


def test_limit_comes_last() -> None:
    assert _inputs(limit_train_samples=100).samples == 100
    assert _inputs(dataset="mnist", validation_fraction=0.5, limit_train_samples=30000).warnings == ()
    inputs = _inputs(dataset="mnist", limit_train_samples=70000)
    assert inputs.samples == 60000
    said = "--limit-train-samples 70000 has no effect: there are only 60000 training samples."
    assert inputs.warnings == (said,)


def test_a_folder_that_the_data_set_does_not_read_is_a_warning() -> None:
    said = "--data-dir photos has no effect: --dataset digits needs no files."
    assert _inputs(dataset="digits", data_dir="photos").warnings == (said,)
    assert _inputs(dataset="mnist", data_dir="photos").warnings == ()


def test_external_data_set_needs_its_size() -> None:
    with pytest.raises(BadInputError, match="--dataset-size"):
        _inputs(dataset="own.data:make")


def test_external_data_set_is_planned_with_the_models_shape_and_a_warning() -> None:
    inputs = _inputs(model="mnist_cnn", dataset="own.data:make", dataset_size=640, num_classes=5)
    assert (_shape(inputs), inputs.samples) == ((1, 28, 5), 640)
    (warning,) = inputs.warnings
    assert "--channels, --image-size can change them" in warning


def test_external_model_takes_the_data_sets_shape() -> None:
    assert _shape(_inputs(model="own.models:net")) == (1, 8, 10)


def test_external_model_and_data_set_need_the_shape() -> None:
    with pytest.raises(BadInputError, match="--channels and --image-size"):
        _inputs(model="own.models:net", dataset="own.data:make", dataset_size=10, num_classes=2)


def test_unknown_names_are_errors() -> None:
    with pytest.raises(BadInputError, match="--dataset minst"):
        _inputs(dataset="minst")
    with pytest.raises(BadInputError, match="--model foo"):
        _inputs(model="foo")


def test_image_folder_is_planned_like_data_that_is_not_opened() -> None:
    with pytest.raises(BadInputError, match=r"--dataset image-folder is not opened.*--dataset-size 1000"):
        _inputs(dataset="image-folder")
    inputs = _inputs(model="mnist_cnn", dataset="image-folder", dataset_size=90, image_size=40)
    assert (_shape(inputs), inputs.samples) == ((3, 40, 10), 90)
    (warning,) = inputs.warnings
    assert "--num-classes can change them" in warning


def test_imagenet_is_known_without_files() -> None:
    for name in ("imagenet", "gc-imagenet"):
        inputs = _inputs(dataset=name)
        assert (_shape(inputs), inputs.samples, inputs.warnings) == ((3, 224, 1000), 1281167, ())


@pytest.mark.parametrize(
    ("kind", "options", "expected"),
    [
        ("photographs", {}, (640, 3, 224, 4)),
        ("photographs", {"validation_fraction": 0.5, "image_size": 96}, (400, 3, 96, 4)),
        ("photographs", {"folds": 5, "fold": 0}, (640, 3, 224, 4)),
        ("photographs", {"limit_train_samples": 30}, (30, 3, 224, 4)),
        ("own validation", {}, (1000, 3, 224, 4)),
        ("grey files in colour", {}, (640, 3, 224, 4)),
        ("grey files in colour", {"channels": 1}, (640, 1, 224, 4)),
        ("tiny images", {}, (50_000, 3, 28, 4)),
        ("grey masks", {"tile_size": 64}, (90, 1, 64, 2)),
        ("masks of one size", {}, (90, 3, 256, 2)),
    ],
)
def test_measured_data_are_planned_as_they_are(
    kind: str, options: dict[str, Any], expected: tuple[int, int, int, int]
) -> None:
    found = KINDS[kind]
    inputs = known_inputs(Recipe(dataset=found.dataset, **options), found.as_json())
    assert (inputs.samples, inputs.channels, inputs.image_size, inputs.num_classes) == expected
    assert inputs.warnings == ()


@pytest.mark.parametrize(
    ("kind", "options", "sides"),
    [
        ("street scenes", {}, (360, 480)),
        ("street scenes", {"tile_size": 64}, (64, None)),
        ("isbi2012", {}, (512, None)),
        ("photographs", {}, (224, None)),
    ],
)
def test_images_that_are_not_square_have_two_sides(
    kind: str, options: dict[str, Any], sides: tuple[int, int | None]
) -> None:
    found = KINDS[kind]
    inputs = known_inputs(Recipe(dataset=found.dataset, **options), found.as_json())
    assert (inputs.image_size, inputs.width) == sides


def test_a_plan_leaves_out_ignored_classes_and_does_not_count_groups() -> None:
    fields: dict[str, Any] = {
        "dataset": "mask-folder",
        "model": "unet_same",
        "dataset_size": 10,
        "channels": 3,
        "tile_size": 64,
        "num_classes": 4,
    }
    origins = dict.fromkeys(Recipe.model_fields, "default")
    plain = planned_inputs(Recipe(**fields), origins=origins)
    assert (plain.num_classes, plain.warnings) == (4, ())
    ignoring = planned_inputs(Recipe(**fields, ignore_class=("void",)), origins=origins)
    assert ignoring.num_classes == 3
    grouped = planned_inputs(Recipe(**fields, group_by="prefix"), origins=origins)
    assert grouped.samples == plain.samples
    (warning,) = grouped.warnings
    assert warning.startswith("--group-by prefix holds out whole groups")
