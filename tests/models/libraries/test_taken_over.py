"""A library's input size and normalisation become part of the recipe, once; the packages are stand-ins."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import drivetrain
from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSpec
from drivetrain.models.libraries.taken_over import take_over
from drivetrain.plan.training_plan import build_plan
from drivetrain.recipe.load import ResolvedRecipe, read_recipe_yaml, resolve_recipe
from drivetrain.recipe.normalisation import ChannelValues
from drivetrain.recipe.schema import Recipe

pytestmark = pytest.mark.usefixtures("stand_in_libraries", "no_pictures")

VALUES = ChannelValues(mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.1), of="timm/resnet4")


def _taken(**options: Any) -> ResolvedRecipe:
    return take_over(resolve_recipe(overrides={"dataset": "digits", "model": "timm/resnet4", **options}))


def test_what_is_not_given_is_the_librarys() -> None:
    taken = _taken()
    assert (taken.recipe.image_size, taken.recipe.normalisation) == (24, VALUES)
    assert taken.warnings == (
        "Images are resized to 24x24 and normalised with mean 0.5, 0.4, 0.3 and deviation 0.25, 0.2, 0.1, as "
        "timm/resnet4 expects; --image-size none keeps the data's size, --normalisation unit only scales to "
        "0 to 1.",
    )


def test_what_is_given_stays() -> None:
    taken = _taken(image_size="none", normalisation="unit")
    assert (taken.recipe.image_size, taken.recipe.normalisation, taken.warnings) == (None, "unit", ())
    assert _taken(image_size=30).recipe.image_size == 30


def test_our_own_models_take_nothing_over() -> None:
    resolved = resolve_recipe(overrides={"dataset": "digits"})
    assert take_over(resolved) is resolved


def test_a_segmentation_keeps_its_size() -> None:
    taken = _taken(model="smp/fpn:resnet4", dataset="mask-folder", data_dir="x")
    assert taken.recipe.image_size is None
    assert isinstance(taken.recipe.normalisation, ChannelValues)
    assert "resized" not in taken.warnings[0]


def test_a_run_that_goes_on_has_everything(monkeypatch: pytest.MonkeyPatch) -> None:
    first = _taken().recipe
    monkeypatch.setattr("drivetrain.models.libraries.taken_over.library_for", pytest.fail)
    base = json.loads(first.model_dump_json())
    again = take_over(resolve_recipe(base=base))
    assert (again.recipe, again.warnings) == (first, ())


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"model": "timm/resnet8", "image_size": 4}, "at least 8; --image-size 8 works"),
        (
            {"model": "smp/fpn:resnet4", "dataset": "mask-folder", "data_dir": "x", "tile_size": 100},
            "a multiple of 32; --tile-size 96 works",
        ),
        ({"model": "hf/vit", "dataset": "synthetic-em"}, "hf/vit is for classification and --dataset"),
        ({"model": "timm/resnet4", "dataset": "synthetic-em"}, "is for classification and"),
        ({"model": "timm/resnet4", "model_width": 3}, "--model-width 3 has no effect"),
    ],
)
def test_what_does_not_fit_is_refused(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        build_plan(_taken(**options), lr_at=())


def _photos(samples: int = 24, *, size: int = 10, channels: int = 1) -> tuple[Any, Any]:
    numbers = np.random.default_rng(1)
    images = numbers.integers(0, 256, (samples, size, size, channels), dtype=np.uint8)
    return images, numbers.integers(0, 3, samples)


def _train(path: Path, **options: Any) -> Any:
    settings = {"max_updates": 2, "micro_batch_size": 8, "validation_fraction": 0.3, **options}
    return drivetrain.train(data=_photos(), output_dir=str(path), quiet=True, **settings)


def test_a_run_directory_holds_what_was_taken_over(tmp_path: Path) -> None:
    _train(tmp_path / "run", model="timm/resnet4")
    recipe = Recipe(**read_recipe_yaml(tmp_path / "run/recipe.yaml"))
    assert (recipe.image_size, recipe.normalisation) == (24, VALUES)
    spec = DataSpec.from_json(json.loads((tmp_path / "run/data.json").read_text()))
    assert spec.normalisation == "per-channel"
    assert spec.mean == pytest.approx((0.4,))
    assert spec.std == pytest.approx((0.55 / 3,))


@pytest.mark.parametrize("model", ["timm/vit_small", "torchvision/resnet4", "hf/vit"])
def test_every_command_agrees_with_the_training(model: str, tmp_path: Path) -> None:
    result = _train(tmp_path / "run", model=model)
    (row,) = drivetrain.evaluate(tmp_path / "run", data=_photos())
    assert row["accuracy"] == result.metrics["best"]["value"]
    assert _train(tmp_path / "run", model=model, max_updates=4).updates == 4
    with pytest.raises(BadInputError, match="--image-size"):
        _train(tmp_path / "run", model=model, image_size=32)


def test_every_fold_has_what_was_taken_over(tmp_path: Path) -> None:
    drivetrain.crossval(
        data=_photos(), model="timm/resnet4", folds=2, max_updates=1, micro_batch_size=4,
        output_dir=str(tmp_path / "run"), quiet=True,
    )  # fmt: skip
    recipes = [Recipe(**read_recipe_yaml(path)) for path in sorted(tmp_path.rglob("fold-*/recipe.yaml"))]
    assert [(recipe.image_size, recipe.normalisation) for recipe in recipes] == [(24, VALUES)] * 2


def test_images_that_do_not_fit_are_refused_before_anything_is_written(tmp_path: Path) -> None:
    images, _ = _photos(size=40)
    masks = (images[..., 0] > 100).astype(np.uint8)
    with pytest.raises(BadInputError, match=r"Images of 40x40 .* --tile-size 32 or --image-size 32 works"):
        drivetrain.train(data=(images, masks), model="smp/fpn:resnet4", output_dir=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_segmentation_with_a_library(tmp_path: Path) -> None:
    images, _ = _photos(8, size=40)
    masks = (images[..., 0] > 100).astype(np.uint8)
    for model in ("smp/unet:resnet4", "torchvision/fcn_small", "hf/segformer"):
        result = drivetrain.train(
            data=(images, masks),
            model=model,
            validation_fraction=0.5,
            max_updates=1,
            micro_batch_size=2,
            output_dir=str(tmp_path / model.replace("/", "-").replace(":", "-")),
            quiet=True,
        )
        assert result.updates == 1


def test_layouts_of_a_library_model_compute_the_same() -> None:
    certificate = drivetrain.certify(model="timm/resnet4", dataset="digits", image_size=8, quick=True)
    assert certificate["ok"]
    assert any(layout["stages"] > 1 for layout in certificate["layouts"])
