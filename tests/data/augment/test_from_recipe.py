"""Which recipe augments how."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.data.augment.chain import Augmentation
from drivetrain.data.augment.flip import Flip
from drivetrain.data.augment.from_recipe import build_augmentation
from drivetrain.data.augment.mixup import Mixup
from drivetrain.data.augment.rand_augment import RandAugment
from drivetrain.data.augment.random_crop import PaddedCrop, ResizedCrop
from drivetrain.data.source import Source
from drivetrain.recipe.schema import Recipe
from tests.data.helpers import float_source, small_source, spec_of_small

FLIP, PAD, CROP = (
    Flip("horizontal"),
    PaddedCrop(),
    ResizedCrop(smallest_share=0.5, height=6, width=5, size=(6, 5)),
)


class DecodingSource:
    """Crops while it decodes."""

    augments_at_decode = True

    def __len__(self) -> int:
        return 50

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        return small_source().fetch(indices)

    def fetch_augmented(
        self, indices: NDArray[np.int64], passes: NDArray[np.int64]
    ) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
        return small_source().fetch(indices)


def built(source: Source | None = None, **fields: Any) -> Augmentation | None:
    spec = spec_of_small(small_source())
    return build_augmentation(Recipe(**fields), spec, source=source or small_source())


def techniques(source: Source | None = None, **fields: Any) -> tuple[tuple[Any, ...], tuple[Any, ...]]:
    augmentation = built(source, **fields)
    assert augmentation is not None
    return augmentation.on_pixels, augmentation.on_normalised


def test_only_cifar10_and_imagenet_augment_of_their_own_accord() -> None:
    assert techniques(dataset="cifar10") == ((FLIP,), (PAD,))
    assert techniques(dataset="imagenet") == techniques(dataset="gc-imagenet") == ((FLIP,), ())
    for dataset in ("cifar100", "mnist", "digits", "synthetic", "image-folder", "my.package:data"):
        assert built(dataset=dataset) is None
    assert built(dataset="cifar10", augment=False) is None
    assert built(dataset="imagenet", augment=False) is None


def test_any_data_set_augments_when_asked() -> None:
    assert techniques(dataset="cifar100", augment=True) == ((FLIP,), (PAD,))
    assert techniques(dataset="my.package:data", augment=True) == ((FLIP,), (PAD,))
    assert techniques(dataset="image-folder", augment=True) == ((FLIP,), ())


def test_a_resized_crop_takes_the_place_of_the_padded_one() -> None:
    assert techniques(dataset="cifar10", random_resized_crop=0.5) == ((CROP, FLIP), ())
    assert techniques(dataset="digits", random_resized_crop=0.5) == ((CROP,), ())
    smaller = ResizedCrop(smallest_share=0.5, height=6, width=5, size=(9, 9))
    assert techniques(dataset="digits", random_resized_crop=0.5, image_size=9) == ((smaller,), ())


def test_what_is_cropped_at_decode_is_not_cropped_again() -> None:
    source = DecodingSource()
    assert built(source, dataset="image-folder", random_resized_crop=0.5) is None
    assert techniques(source, dataset="imagenet", random_resized_crop=0.5) == ((FLIP,), ())


def test_rand_augment_and_mixup_come_on_top() -> None:
    random = RandAugment(operations=2, magnitude=5)
    fields: dict[str, Any] = {"rand_augment": 2, "rand_augment_magnitude": 5}
    assert techniques(dataset="cifar10", **fields) == ((FLIP, random), (PAD,))
    assert techniques(dataset="digits", augment=False, **fields) == ((random,), ())
    mixing = built(dataset="digits", mixup=0.3, seed=8)
    assert mixing == Augmentation(seed=8, mixup=Mixup(alpha=0.3))


def test_rand_augment_needs_to_know_what_white_is() -> None:
    source, spec = float_source()
    with pytest.raises(BadInputError, match=r"--rand-augment 2 needs 8-bit images.*--rand-augment 0"):
        build_augmentation(Recipe(rand_augment=2), spec, source=source)
    assert build_augmentation(Recipe(augment=True), spec, source=source) is not None
