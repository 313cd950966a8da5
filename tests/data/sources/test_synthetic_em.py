"""Generated micrographs."""

import pickle

import numpy as np
import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.masks.masked_images import MaskedImages
from drivetrain.data.sources.synthetic_cells import draw_noise, smooth_noise
from drivetrain.data.sources.synthetic_em import SyntheticMicrographs, open_synthetic_em


def micrographs(*, seed: int = 0, split: str = "train", image_size: int = 128) -> SyntheticMicrographs:
    return SyntheticMicrographs(seed=seed, split=split, samples=8, image_size=image_size)


def test_the_default() -> None:
    opened = open_synthetic_em(seed=0)
    assert opened.validation is not None
    assert isinstance(opened.train, MaskedImages)
    assert (len(opened.train), len(opened.validation), opened.test) == (48, 12, None)
    spec = opened.spec
    assert (spec.channels, spec.height, spec.width, spec.num_classes) == (1, 128, 128, 2)
    assert (spec.task, spec.normalisation, spec.image_dtype) == ("segmentation", "symmetric", "uint8")
    assert (spec.class_names, spec.mask_values) == (("membrane", "cell"), ((0,), (255,)))
    image, mask = opened.train.whole(0)
    assert image.shape == mask.shape == (128, 128, 1)
    assert image.dtype == mask.dtype == np.uint8
    assert opened.train.size(0) == (128, 128)
    assert opened.train.name(3) == "synthetic-em train 3"


def test_sizes_that_are_asked_for() -> None:
    opened = open_synthetic_em(seed=0, dataset_size=8, image_size=40)
    assert opened.validation is not None
    assert (len(opened.train), len(opened.validation)) == (8, 2)
    assert opened.train.whole(7)[0].shape == (40, 40, 1)
    for options, words in (
        ({"image_size": 8}, "--image-size 8 is too small"),
        ({"channels": 3}, "--channels 3 does not match .* use --channels 1"),
        ({"num_classes": 3}, "--num-classes 3 does not match"),
    ):
        with pytest.raises(BadInputError, match=words):
            open_synthetic_em(seed=0, **options)


def test_an_image_depends_on_its_address_alone() -> None:
    source = micrographs()
    backwards = [source.whole(index) for index in (2, 1, 0)]
    for index, (image, mask) in zip((2, 1, 0), backwards, strict=True):
        again_image, again_mask = pickle.loads(pickle.dumps(micrographs())).whole(index)
        assert np.array_equal(image, again_image)
        assert np.array_equal(mask, again_mask)
    others = (micrographs(seed=1), micrographs(split="validation"))
    assert not any(np.array_equal(other.whole(0)[1], source.whole(0)[1]) for other in others)
    with pytest.raises(IndexError):
        source.whole(8)


def test_membranes_are_thin_dark_lines_around_cells() -> None:
    pairs = [micrographs().whole(index) for index in range(8)]
    image, mask = (np.stack(part).astype(float) for part in zip(*pairs, strict=True))
    assert set(np.unique(mask)) == {0, 1}
    assert 0.15 < (mask == 0).mean() < 0.27
    dark, light = image[mask == 0], image[mask == 1]
    assert light.mean() - dark.mean() > 35
    assert 25 < light.std() < 45
    # Told apart neither by a threshold alone nor by chance: there is something to learn.
    shares = [((image < level) == (mask == 0)).mean() for level in range(60, 160, 5)]
    assert 0.75 < max(shares) < 0.92


def test_noise() -> None:
    noise = draw_noise(7, count=100_001)
    assert noise.shape == (100_001,)
    assert abs(float(noise.mean())) < 0.02
    assert abs(float(noise.std()) - 1) < 0.02
    pictures = np.stack([smooth_noise(key, size=64, grain=8.0) for key in range(60)])
    assert 0.85 < float(pictures.std()) < 1.15
    neighbours = np.corrcoef(pictures[:, :, :-1].reshape(-1), pictures[:, :, 1:].reshape(-1))[0, 1]
    far = np.corrcoef(pictures[:, :, :-40].reshape(-1), pictures[:, :, 40:].reshape(-1))[0, 1]
    assert neighbours > 0.95
    assert abs(far) < 0.15
