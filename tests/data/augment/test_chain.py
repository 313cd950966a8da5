"""The chain of techniques, and what chance decides for batches."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from drivetrain.data.augment.chain import Augmentation
from drivetrain.data.augment.flip import Flip
from drivetrain.data.augment.mixup import Mixup
from drivetrain.data.augment.rand_augment import RandAugment
from drivetrain.data.augment.random_crop import PaddedCrop, ResizedCrop
from drivetrain.data.preprocess import Preprocess, channels_last_view
from drivetrain.data.source import DataSpec
from tests.data.augment.helpers import as_array, in_pass, numbers, random_pixels

CIFAR = Augmentation(seed=3, on_pixels=(Flip("horizontal"),), on_normalised=(PaddedCrop(),))


def cifar_spec() -> DataSpec:
    return DataSpec(
        channels=3,
        height=32,
        width=32,
        num_classes=10,
        class_names=tuple("0123456789"),
        image_dtype="uint8",
        normalisation="standardise",
    )


def prepared(
    augmentation: Augmentation, pixels: NDArray[np.uint8], *, number: int = 0, image_size: int | None = None
) -> torch.Tensor:
    """The images at the indices of their pixels, in one batch; partners are taken from the pixels too."""
    indices = numbers(len(pixels))
    drawn = augmentation.draw(indices, passes=in_pass(number, indices), usable=indices)
    labels = torch.from_numpy(drawn.indices)
    images, labels_after = augmentation.prepare(
        channels_last_view(torch.from_numpy(pixels[drawn.indices])),
        labels,
        preprocess=Preprocess(cifar_spec(), image_size),
        draws=torch.from_numpy(drawn.values),
        mix=None if drawn.mix is None else torch.from_numpy(drawn.mix),
    )
    assert labels_after is labels
    return images


def standardised(image: NDArray[np.uint8]) -> NDArray[np.float64]:
    values = image.astype(np.float64)
    return np.asarray((values - values.mean()) / values.std())


def test_the_chain_of_cifar10_is_flip_standardise_pad_crop() -> None:
    pixels = random_pixels(20, 32, 32)
    indices = numbers(20)
    drawn = CIFAR.draw(indices, passes=in_pass(4, indices), usable=indices)
    found = as_array(prepared(CIFAR, pixels, number=4))
    for index, (is_mirrored, top, left) in enumerate(drawn.values.astype(int).tolist()):
        image = standardised(pixels[index, :, ::-1] if is_mirrored else pixels[index])
        padded = np.pad(image, ((4, 4), (4, 4), (0, 0)))
        assert np.abs(found[index] - padded[top : top + 32, left : left + 32]).max() < 1e-6
    assert np.abs(found - as_array(prepared(CIFAR, pixels, number=5))).max() > 1


def test_constant_images_become_zero_whatever_the_crop() -> None:
    pixels = np.empty((4, 32, 32, 3), dtype=np.uint8)
    pixels[:] = np.array([0, 7, 254, 255])[:, None, None, None]
    for image_size in (None, 224):
        assert torch.equal(
            prepared(CIFAR, pixels, image_size=image_size),
            torch.zeros(4, 3, image_size or 32, image_size or 32),
        )


def test_draws_do_not_depend_on_how_batches_are_cut() -> None:
    augmentation = replace(CIFAR, mixup=Mixup(alpha=1))
    indices, usable = numbers(24, first=5), numbers(60)
    whole = augmentation.draw(indices, passes=in_pass(1, indices), usable=usable)
    cut_indices = indices.reshape(3, 4, 2)
    cut = augmentation.draw(cut_indices, passes=in_pass(1, cut_indices), usable=usable)
    assert whole.mix is not None
    assert cut.mix is not None
    assert np.array_equal(cut.mix.reshape(-1), whole.mix)
    for part in ("indices", "passes", "values"):
        together, apart = getattr(whole, part), getattr(cut, part)
        assert np.array_equal(apart[:, :, :2].reshape(together[:24].shape), together[:24])
        assert np.array_equal(apart[:, :, 2:].reshape(together[24:].shape), together[24:])


def test_a_partner_looks_as_it_does_in_this_pass_itself() -> None:
    pixels = random_pixels(12, 32, 32)
    mixing = replace(CIFAR, mixup=Mixup(alpha=1))
    indices = numbers(12)
    drawn = mixing.draw(indices, passes=in_pass(0, indices), usable=indices)
    assert drawn.mix is not None
    partners, share = drawn.indices[12:], drawn.mix[:, None, None, None].astype(np.float64)
    alone = as_array(prepared(CIFAR, pixels))
    assert np.allclose(
        as_array(prepared(mixing, pixels)), alone * share + alone[partners] * (1 - share), atol=1e-5
    )


@pytest.mark.parametrize("image_size", [None, 20])
def test_all_techniques_together_give_channels_last_images_of_the_size(image_size: int | None) -> None:
    size = (image_size or 32, image_size or 32)
    everything = Augmentation(
        seed=1,
        on_pixels=(
            ResizedCrop(smallest_share=0.3, height=32, width=32, size=size),
            Flip("horizontal"),
            RandAugment(operations=2, magnitude=9),
        ),
        on_normalised=(PaddedCrop(),),
        mixup=Mixup(alpha=0.4),
    )
    images = prepared(everything, random_pixels(10, 32, 32), image_size=image_size)
    assert images.shape == (10, 3, *size)
    assert images.dtype == torch.float32
    assert images.is_contiguous(memory_format=torch.channels_last)
    assert torch.isfinite(images).all()


def test_nothing_to_do_is_known() -> None:
    assert CIFAR.has_effect
    assert Augmentation(seed=1, mixup=Mixup(alpha=1)).has_effect
    assert not Augmentation(seed=1).has_effect
