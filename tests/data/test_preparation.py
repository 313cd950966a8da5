"""From a recipe to what prepares its samples."""

from drivetrain.data.preprocess import DensePreprocess, Preprocess, build_preparation
from drivetrain.data.source import DataSpec
from drivetrain.recipe.schema import Recipe
from tests.data.dense_samples import dense_spec


def test_classes_of_whole_images() -> None:
    spec = DataSpec(channels=1, height=8, width=8, num_classes=2, class_names=("a", "b"), image_dtype="uint8")
    assert build_preparation(Recipe(dataset="digits"), spec) == Preprocess(spec, None)
    assert build_preparation(Recipe(dataset="digits", image_size=12), spec) == Preprocess(spec, 12)


def test_masks_get_the_margin_of_their_model() -> None:
    spec = dense_spec(512, 512)
    padded = build_preparation(Recipe(model="unet_same"), spec)
    assert padded == DensePreprocess(spec, image_size=None, margin=0)
    valid = build_preparation(Recipe(model="unet", image_size=388), spec)
    assert valid == DensePreprocess(spec, image_size=388, margin=92)
    assert (valid.height, valid.width, valid.label_size) == (572, 572, (388, 388))


def test_tiles_come_with_their_margin() -> None:
    prepared = build_preparation(Recipe(model="unet"), dense_spec(204, 204, tile=20))
    assert isinstance(prepared, DensePreprocess)
    assert (prepared.height, prepared.padding, prepared.label_size) == (204, 0, (20, 20))


def test_a_users_own_model_has_no_margin() -> None:
    assert build_preparation(Recipe(model="my.nets:make"), dense_spec(20, 24)).label_size == (20, 24)
