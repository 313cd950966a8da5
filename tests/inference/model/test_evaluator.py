"""How a run measures its model: every image counts once, whatever the batches and tiles."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.run.segments import SEGMENT, write_shapes
from tests.tasks.dense_cases import cross_entropy_by_hand, dice_by_hand
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.data.preprocess import build_preparation
from drivetrain.data.source import DataSplits
from drivetrain.data.splits import open_data
from drivetrain.data.training_tiles import UniformSource, masked_of
from drivetrain.devices.device import choose_device
from drivetrain.inference.model.evaluator import Evaluator, build_evaluator, validation_batch_size
from drivetrain.inference.model.tiles import FlipAveraged, TiledForward
from drivetrain.models.from_recipe import prepare_model
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe
from drivetrain.tasks.segmentation_measure import SegmentationEvaluation

CPU = choose_device("cpu")


def _recipe(**options: Any) -> Recipe:
    return resolve_recipe(overrides={**SEGMENT, **options}).recipe


def _folder_recipe(tmp_path: Path, **options: Any) -> Recipe:
    folder = write_shapes(tmp_path / "shapes")
    own = {"dataset": "mask-folder", "data_dir": str(folder), "dataset_size": None, "image_size": None}
    return _recipe(**{**own, **options})


def _evaluator(recipe: Recipe, data: DataSplits, model: nn.Module, **options: Any) -> Evaluator:
    assert data.validation is not None
    return build_evaluator(
        recipe,
        model=model,
        source=data.validation,
        preprocess=build_preparation(recipe, data.spec),
        device=CPU,
        **options,
    )


def _measured(evaluate: Evaluator) -> SegmentationEvaluation:
    found = evaluate()
    assert isinstance(found, SegmentationEvaluation)
    return found


def _opened(recipe: Recipe) -> tuple[DataSplits, nn.Module]:
    data = open_data(recipe)
    return data, prepare_model(recipe, data.spec)[0]


@pytest.mark.parametrize("placement", ["resident", "stream"])
def test_the_batches_of_a_validation_change_nothing(placement: str) -> None:
    recipe = _recipe(dataset_size=28, data_placement=placement)
    data, model = _opened(recipe)
    found = [
        _measured(_evaluator(recipe.model_copy(update={"validation_micro_batch_size": size}), data, model))
        for size in (1, 3, 7)
    ]
    assert found[0].samples == 7
    for other in found[1:]:
        assert other.dice == pytest.approx(found[0].dice, abs=1e-7)
        assert other.loss == pytest.approx(found[0].loss, abs=1e-6)
        assert np.array_equal(other.confusions, found[0].confusions)


class Brightness(nn.Module):
    """Computes every pixel on its own, so that no batch can change a bit of it."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return torch.cat([images, -images], dim=1)


def test_what_measures_adds_nothing_of_the_batches() -> None:
    recipe = _recipe(dataset_size=28)
    data, _ = _opened(recipe)
    found = [
        _measured(
            _evaluator(recipe.model_copy(update={"validation_micro_batch_size": size}), data, Brightness())
        )
        for size in (1, 2, 7)
    ]
    assert found[0].dice == pytest.approx(found[1].dice, abs=1e-12)
    assert found[0].dice == pytest.approx(found[2].dice, abs=1e-12)


@pytest.mark.parametrize("flips", [False, True])
def test_tiles_measure_whole_images_at_their_own_size(tmp_path: Path, flips: bool) -> None:
    recipe = _folder_recipe(tmp_path, tile_size=16, validation_fraction=0.5)
    data, model = _opened(recipe)
    found = _measured(_evaluator(recipe, data, model, flips=flips, overlap=0.5))
    assert data.validation is not None
    masked = masked_of(data.validation)
    model.eval()
    forward = TiledForward(FlipAveraged(model) if flips else model, tile=16, margin=0, batch=5, overlap=0.5)
    for index in range(len(masked)):
        image, mask = masked.whole(index)
        pixels = torch.from_numpy(image.copy()).permute(2, 0, 1)[None] / 127.5 - 1
        with torch.inference_mode():
            logits = forward(pixels)[0].double().numpy()
        assert logits.shape == (3, *masked.size(index))
        dice = dice_by_hand(logits, mask[..., 0])
        costs = cross_entropy_by_hand(logits, mask[..., 0], sigmoid=False)
        assert found.class_dice[index] == pytest.approx(dice, abs=1e-5)
        assert found.losses[index] == pytest.approx(costs.mean() + 1 - dice.mean(), abs=1e-5)
        assert found.confusions[index].sum() == mask.size


def test_the_overlap_and_flips_of_tiles_are_as_asked(tmp_path: Path) -> None:
    recipe = _folder_recipe(tmp_path, tile_size=16)
    data, model = _opened(recipe)
    asked: list[dict[str, Any]] = [{}, {"overlap": 0.0}, {"flips": True}]
    plain, other_overlap, flipped = (_measured(_evaluator(recipe, data, model, **more)) for more in asked)
    assert plain.dice != other_overlap.dice
    assert plain.dice != flipped.dice
    averaging = recipe.model_copy(update={"flip_averaging": True})
    assert _measured(_evaluator(averaging, data, model)).dice == flipped.dice
    assert _measured(_evaluator(averaging, data, model, flips=False)).dice == plain.dice


def test_images_of_another_size_than_the_trained_ones_go_by_tiles(tmp_path: Path) -> None:
    recipe = _recipe()
    data, model = _opened(recipe.model_copy(update={"image_size": None, "tile_size": 16}))
    assert data.validation is not None
    trained = _recipe(image_size=None)
    spec = open_data(_recipe()).spec
    found = _measured(
        build_evaluator(
            trained,
            model=model,
            source=UniformSource(masked_of(data.validation)),
            preprocess=build_preparation(trained, spec),
            device=CPU,
        )
    )
    assert (spec.height, spec.tile) == (32, None)
    assert found.confusions[0].sum() == 128 * 128


def test_scaled_images_are_measured_whole_and_refuse_an_overlap() -> None:
    data, model = _opened(_recipe())
    with pytest.raises(BadInputError, match=r"--tile-overlap has no effect: .*--image-size 32"):
        _evaluator(_recipe(), data, model, overlap=0.5)


def test_the_batch_fits_the_size_of_the_images() -> None:
    recipe = _recipe()
    small, large = (
        build_preparation(recipe.model_copy(update={"image_size": size}), open_data(recipe).spec)
        for size in (32, 1024)
    )
    assert validation_batch_size(recipe, small) == 512
    assert validation_batch_size(recipe, large) == 2
    assert validation_batch_size(recipe.model_copy(update={"validation_micro_batch_size": 3}), large) == 3
