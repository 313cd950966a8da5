"""A user's own images with masks, as arrays or tensors."""

from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import TensorDataset

from drivetrain.core.errors import BadInputError
from drivetrain.data.sources.masked_arrays import is_masked, masked_splits_of
from drivetrain.data.splits import open_data, split_user_data
from drivetrain.data.training_tiles import TileSource, UniformSource, masked_of
from drivetrain.recipe.schema import Recipe
from tests.data.dense_samples import stored_pairs

IMAGES, STORED = stored_pairs(6, 20, 24, classes=3, channels=3)
MASKS = STORED[..., 0]
RECIPE = Recipe(model="unet_same", dataset="python:data")


def _tensors() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.from_numpy(IMAGES).permute(0, 3, 1, 2), torch.from_numpy(MASKS)


def _forms() -> dict[str, Any]:
    images, masks = _tensors()
    return {
        "arrays": (IMAGES, MASKS),
        "int64": (IMAGES, MASKS.astype(np.int64)),
        "label channel": [IMAGES, STORED],
        "tensors": (images, masks),
        "tensors with a plane": (images, masks[:, None].long()),
        "data set": TensorDataset(images, masks),
    }


@pytest.mark.parametrize("form", list(_forms()))
def test_all_forms_are_the_same_data(form: str) -> None:
    data = _forms()[form]
    assert is_masked(data)
    splits = masked_splits_of(data)
    for index in (0, 5):
        image, mask = splits.train.whole(index)
        assert np.array_equal(image, IMAGES[index])
        assert np.array_equal(mask, STORED[index])
        assert mask.dtype == np.uint8
    assert splits.train.size(3) == (20, 24)
    assert splits.train.name(3) == "image 3"
    spec = splits.spec
    assert (spec.task, spec.num_classes, spec.class_names) == ("segmentation", 3, ("0", "1", "2"))
    assert (spec.channels, spec.image_dtype, spec.normalisation) == (3, "uint8", "symmetric")


def test_labels_and_data_sets_are_no_masks() -> None:
    assert not is_masked((IMAGES, np.arange(6)))
    assert not is_masked((IMAGES, np.eye(6)))
    assert not is_masked([1, 2])
    assert not is_masked([(IMAGES[0], MASKS[0]), (IMAGES[1], MASKS[1])])


def test_truth_values_are_two_classes_and_floating_images_stay() -> None:
    spec = masked_splits_of((IMAGES.astype(np.float64), MASKS > 0)).spec
    assert (spec.num_classes, spec.image_dtype) == (2, "float32")
    nothing = masked_splits_of((IMAGES, np.zeros_like(MASKS))).spec
    assert nothing.num_classes == 2


def test_validation_data_may_have_more_classes_and_another_size() -> None:
    more = (IMAGES[:2, :18], np.full((2, 18, 24), 4))
    splits = masked_splits_of((IMAGES, MASKS), more)
    assert splits.validation is not None
    assert (len(splits.validation), splits.spec.num_classes) == (2, 5)


@pytest.mark.parametrize(
    ("masks", "said"),
    [
        (
            MASKS[:, :18],
            "The masks are 18x24, but their images are 20x24 .height x width.; give both the same size",
        ),
        (MASKS[:4], "There are 6 images but 4 masks; each image needs one mask"),
        (MASKS.astype(np.float32), "The masks are float32; they must be whole numbers, for example uint8"),
        (MASKS.astype(np.int64) - 1, r"The mask of image 0 contains the value -1; .* from 0 to 255"),
        (MASKS.astype(np.int64) * 300, "contains the value 600; classes are whole numbers from 0 to 255"),
        (np.eye(3, dtype=np.uint8)[MASKS], r"shape \(6, 20, 24, 3\); .* give the argmax over the planes"),
    ],
)
def test_masks_that_do_not_fit_are_refused(masks: NDArray[Any], said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        masked_splits_of((IMAGES, masks))


def test_what_does_not_fit_the_training_data_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"give \(images, masks\)"):
        masked_splits_of((IMAGES, MASKS), (IMAGES, np.arange(6)))
    with pytest.raises(BadInputError, match="have 1 channels in uint8, but the training images 3"):
        masked_splits_of((IMAGES, MASKS), (IMAGES[..., :1], MASKS))
    with pytest.raises(BadInputError, match="no samples"):
        masked_splits_of((IMAGES[:0], MASKS[:0]))


def test_user_data_become_samples_by_the_recipes_rules() -> None:
    whole = split_user_data(RECIPE.model_copy(update={"validation_fraction": 0.3}), train=(IMAGES, MASKS))
    assert (len(whole.train), whole.spec.height, whole.spec.tile) == (4, 20, None)
    assert whole.validation is not None
    assert len(whole.validation) == 2
    tiled = split_user_data(RECIPE.model_copy(update={"tile_size": 8}), train=(IMAGES, MASKS))
    assert isinstance(tiled.train, TileSource)
    assert tiled.train.fetch(np.arange(2))[0].shape == (2, 8, 8, 3)
    more = split_user_data(RECIPE.model_copy(update={"num_classes": 5}), train=(IMAGES, MASKS))
    assert more.spec.class_names == ("0", "1", "2", "3", "4")
    with pytest.raises(BadInputError, match="--num-classes 2 is less than the 3 classes"):
        split_user_data(RECIPE.model_copy(update={"num_classes": 2}), train=(IMAGES, MASKS))


def test_a_users_factory_may_return_masks(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = (
        "import numpy as np",
        "def one(n=4):",
        "    return np.zeros((n, 16, 16, 1), np.uint8), np.arange(n * 256).reshape(n, 16, 16) % 2",
        "def both():",
        "    return one(), one(2)",
    )
    (tmp_path / "own_masks.py").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    one = open_data(Recipe(model="unet_same", dataset="own_masks:one"))
    assert isinstance(one.train, UniformSource)
    assert one.spec.task == "segmentation"
    both = open_data(Recipe(model="unet_same", dataset="own_masks:both"))
    assert both.validation is not None
    assert len(masked_of(both.validation)) == 2
