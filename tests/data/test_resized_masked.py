"""Images of many sizes brought to one, with their masks."""

import pickle

import numpy as np
import pytest
import torch
from torch.nn.functional import interpolate

from drivetrain.data.masks.masked_images import HeldMaskedImages, MaskedImages
from drivetrain.data.segmentation_splits import ResizedMasked
from tests.data.dense_samples import stored_pairs


def _held(classes: int = 3) -> HeldMaskedImages:
    images, masks = stored_pairs(3, 21, 15, classes=classes, channels=3)
    return HeldMaskedImages(images=images, masks=masks, names=("a", "b", "c"))


def test_every_image_gets_one_size_and_keeps_its_name() -> None:
    resized = ResizedMasked(_held(), 16, 3)
    assert isinstance(resized, MaskedImages)
    assert (len(resized), resized.name(2), resized.size(2)) == (3, "c", (16, 16))
    image, mask = pickle.loads(pickle.dumps(resized)).whole(2)
    assert (image.shape, image.dtype) == ((16, 16, 3), np.uint8)
    assert (mask.shape, mask.dtype) == ((16, 16, 1), np.uint8)


@pytest.mark.parametrize("size", [8, 40])
def test_images_are_bilinear_between_the_centres_of_pixels(size: int) -> None:
    held = _held()
    image, _ = ResizedMasked(held, size, 3).whole(1)
    stored = torch.from_numpy(held.images[1]).permute(2, 0, 1)[None].double()
    expected = interpolate(stored, size=(size, size), mode="bilinear", align_corners=False)
    assert np.abs(image - expected[0].permute(1, 2, 0).numpy()).max() <= 0.5 + 1e-3


def test_masks_take_the_nearest_pixels_class() -> None:
    held = _held()
    _, mask = ResizedMasked(held, 16, 3).whole(0)
    rows, columns = (
        np.minimum(((np.arange(16) + 0.5) * side / 16).astype(int), side - 1) for side in (21, 15)
    )
    assert np.array_equal(mask, held.masks[0][rows[:, None], columns])


def test_floating_images_stay_floating() -> None:
    images = np.linspace(-3, 3, 2 * 10 * 10, dtype=np.float32).reshape(2, 10, 10, 1)
    held = HeldMaskedImages(images=images, masks=np.zeros((2, 10, 10, 1), np.uint8), names=("a", "b"))
    image, _ = ResizedMasked(held, 5, 3).whole(0)
    assert image.dtype == np.float32
    assert image.min() < -2
    assert not np.array_equal(image, np.rint(image))


@pytest.mark.filterwarnings("error")
def test_the_size_it_has_already_changes_nothing() -> None:
    images, masks = stored_pairs(2, 12, 12)
    for values in (images, masks):
        values.setflags(write=False)
    image, mask = ResizedMasked(HeldMaskedImages(images=images, masks=masks, names=("a", "b")), 12, 3).whole(
        1
    )
    assert np.array_equal(image, images[1])
    assert np.array_equal(mask, masks[1])


def test_of_two_classes_half_a_pixel_counts_as_in_the_fixed_geometry() -> None:
    masks = np.zeros((1, 4, 4, 1), np.uint8)
    masks[0, :, 1:] = 1
    held = HeldMaskedImages(images=np.zeros((1, 4, 4, 1), np.uint8), masks=masks, names=("a",))
    _, mask = ResizedMasked(held, 2, 2).whole(0)
    assert mask[..., 0].tolist() == [[1, 1], [1, 1]]
