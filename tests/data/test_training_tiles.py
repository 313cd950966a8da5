"""Whole images and tiles of them as training samples."""

import pickle
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from drivetrain.data.files.decode import BadSampleError
from drivetrain.data.masks.masked_images import HeldMaskedImages, MaskedImages
from drivetrain.data.source import AugmentingSource, Source, SubsetSource
from drivetrain.data.training_tiles import TileSource, UniformSource, masked_of, mirrored_places
from tests.data.numbered_images import SIZES, Numbered


@dataclass(frozen=True)
class Broken(Numbered):
    def whole(self, index: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        if index == 0:
            raise OSError("truncated")
        return super().whole(index)


def _indices(*values: int) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _held() -> HeldMaskedImages:
    generator = np.random.default_rng(0)
    return HeldMaskedImages(
        images=generator.integers(0, 256, (6, 8, 9, 3), dtype=np.uint8),
        masks=generator.integers(0, 2, (6, 8, 9, 2), dtype=np.uint8),
        names=tuple("abcdef"),
    )


@pytest.mark.parametrize("length", [1, 2, 5])
def test_mirroring_is_that_of_numpy(length: int) -> None:
    expected = np.pad(np.arange(length), 7, mode="symmetric")
    assert mirrored_places(-7, length + 7, length=length).tolist() == expected.tolist()


def test_whole_images_are_stacked_with_their_masks() -> None:
    held = _held()
    source = UniformSource(held)
    assert isinstance(source, Source)
    assert len(source) == 6
    images, masks = source.fetch(_indices(4, 0))
    assert np.array_equal(images, held.images[[4, 0]])
    assert np.array_equal(masks, held.masks[[4, 0]])
    assert images.dtype == masks.dtype == np.uint8


@pytest.mark.parametrize("margin", [0, 3])
def test_a_tile_is_a_piece_of_the_mirrored_image_inside_its_borders(margin: int) -> None:
    source = TileSource(Numbered(), tile=16, margin=margin, seed=1)
    assert isinstance(source, AugmentingSource)
    indices = np.arange(len(SIZES))
    for number in range(20):
        images, masks = source.fetch_augmented(indices, np.full_like(indices, number))
        assert images.shape == (len(SIZES), 16 + 2 * margin, 16 + 2 * margin, 2)
        assert np.array_equal(masks[..., 0], images[..., 0] + images[..., 1])
        for (height, width), image in zip(SIZES, images, strict=True):
            inner = image[margin : margin + 16, margin : margin + 16].astype(int)
            for axis, length in ((0, height), (1, width)):
                line = inner[:, 0, 0] if axis == 0 else inner[0, :, 1]
                if length >= 16:
                    assert (np.diff(line) == 1).all()
                else:
                    assert set(line.tolist()) == set(range(length))


def test_every_place_of_a_tile_comes_up() -> None:
    source = TileSource(Numbered(), tile=16, margin=0, seed=1)
    passes = np.arange(2000)
    images, _ = source.fetch_augmented(np.full(2000, 0), passes)
    tops, counts = np.unique(images[:, 0, 0, 0], return_counts=True)
    assert tops.tolist() == list(range(40 - 16 + 1))
    assert counts.min() > 40
    assert np.unique(images[:, 0, 0, 1]).tolist() == list(range(60 - 16 + 1))


def test_a_tile_depends_on_its_sample_and_pass_alone() -> None:
    source = TileSource(Numbered(), tile=8, margin=2, seed=5)
    images, masks = source.fetch_augmented(_indices(0, 2, 0), _indices(3, 3, 4))
    alone, mask = pickle.loads(pickle.dumps(source)).fetch_augmented(_indices(0), _indices(4))
    assert np.array_equal(alone[0], images[2])
    assert np.array_equal(mask[0], masks[2])
    assert not np.array_equal(images[0], images[2])
    other_seed, _ = replace(source, seed=6).fetch_augmented(_indices(0, 2, 0), _indices(3, 3, 4))
    assert not np.array_equal(other_seed, images)


def test_measuring_takes_the_middle() -> None:
    images, _ = TileSource(Numbered(), tile=16, margin=2, seed=1).fetch(_indices(0))
    assert images[0, 2, 2].tolist() == [12, 22]


def test_a_subset_is_looked_through() -> None:
    source = SubsetSource(
        SubsetSource(TileSource(Numbered(), tile=8, margin=0, seed=1), _indices(3, 2, 0)), _indices(2, 1)
    )
    assert source.augments_at_decode
    masked = masked_of(source)
    assert isinstance(masked, MaskedImages)
    assert len(masked) == 2
    assert [masked.name(index) for index in range(2)] == ["image-0", "image-2"]
    assert [masked.size(index) for index in range(2)] == [SIZES[0], SIZES[2]]
    assert masked.whole(1)[0].shape == (17, 90, 2)
    held = _held()
    assert masked_of(UniformSource(held)) is held


def test_a_bad_sample_is_named_and_stood_in_for() -> None:
    source = TileSource(Broken(), tile=8, margin=0, seed=1)
    source.check(1)
    with pytest.raises(BadSampleError, match="image-0 cannot be read: truncated"):
        source.check(0)
    marked = replace(source, bad=_indices(0))
    assert np.array_equal(marked.fetch(_indices(0))[0], source.fetch(_indices(1))[0])
    uniform = UniformSource(Broken(((4, 4), (4, 4))), bad=_indices(0))
    assert uniform.fetch(_indices(0, 1))[0].shape == (2, 4, 4, 2)
