"""From stored images to what a model sees."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from drivetrain.data.preprocess import Preprocess, channels_last_view
from drivetrain.data.source import Normalisation
from tests.data.bilinear import bilinear_by_hand
from tests.data.helpers import float_source, small_source, spec_of_small


def stored(channels: int = 3) -> torch.Tensor:
    images, _ = small_source(channels=channels).fetch(np.arange(4))
    return channels_last_view(torch.from_numpy(images))


def test_bytes_are_multiplied_by_one_over_255() -> None:
    images = stored()
    prepared = Preprocess(spec_of_small(small_source()), None)(images)
    assert prepared.dtype == torch.float32
    assert torch.equal(prepared, images.to(torch.float32) * (1 / 255))
    assert prepared.is_contiguous(memory_format=torch.channels_last)


def test_floating_data_are_used_as_they_are() -> None:
    source, spec = float_source()
    images, _ = source.fetch(np.arange(5))
    prepared = Preprocess(spec, None)(channels_last_view(torch.from_numpy(images)))
    assert np.array_equal(prepared.permute(0, 2, 3, 1).numpy(), images)


@pytest.mark.parametrize("size", [3, 11])
def test_resize_is_bilinear_with_half_pixel_centres(size: int) -> None:
    images = stored()
    preprocess = Preprocess(spec_of_small(small_source()), size)
    prepared = preprocess(images)
    assert (preprocess.channels, preprocess.height, preprocess.width) == (3, size, size)
    assert prepared.shape == (4, 3, size, size)
    expected = bilinear_by_hand(images[2, 1].numpy().astype(np.float64), size) / 255
    assert np.allclose(prepared[2, 1].numpy(), expected, atol=1e-6)


@pytest.mark.parametrize("channels", [1, 3, 5])
@pytest.mark.parametrize("size", [None, 3, 70])
def test_a_sample_does_not_depend_on_its_batch(channels: int, size: int | None) -> None:
    images = stored(channels)
    preprocess = Preprocess(spec_of_small(small_source(channels=channels)), size)
    whole = preprocess(images)
    for index in range(4):
        assert torch.equal(preprocess(images[index : index + 1])[0], whole[index])
    assert whole.is_contiguous(memory_format=torch.channels_last)


def test_the_input_is_not_written_to() -> None:
    preprocess = Preprocess(spec_of_small(small_source()), None)
    images = stored().to(torch.float32)
    before = images.clone()
    prepared = preprocess(images)
    assert torch.equal(images, before)
    assert torch.equal(prepared, preprocess(stored()))


def test_standardised_images_have_mean_0_and_deviation_1() -> None:
    images = stored()
    spec = replace(spec_of_small(small_source()), normalisation="standardise")
    for travelled in (images, images.to(torch.float32)):
        prepared = Preprocess(spec)(travelled)
        for index in range(4):
            values = images[index].numpy().astype(np.float64)
            expected = (values - values.mean()) / values.std()
            assert np.abs(prepared[index].numpy() - expected).max() < 1e-6
    assert prepared.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("size", [None, 224])
def test_a_constant_image_is_standardised_to_0(size: int | None) -> None:
    spec = replace(spec_of_small(small_source()), normalisation="standardise")
    images = channels_last_view(torch.full((3, 6, 5, 3), 251, dtype=torch.uint8))
    images[0, 0, 0, 0] = 252
    prepared = Preprocess(spec, size)(images)
    assert torch.equal(prepared[1:], torch.zeros_like(prepared[1:]))
    assert prepared[0].abs().max() > 1


def test_images_of_imagenet_lose_its_mean_colour() -> None:
    images = stored()
    spec = replace(spec_of_small(small_source()), normalisation="imagenet")
    mean, deviation = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    expected = (images.permute(0, 2, 3, 1).numpy() / 255 - mean) / deviation
    for travelled in (images, images.to(torch.float32)):
        prepared = Preprocess(spec)(travelled)
        assert np.abs(prepared.permute(0, 2, 3, 1).numpy() - expected).max() < 1e-6
        assert prepared.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("normalisation", ["standardise", "imagenet"])
def test_floating_data_are_never_normalised(normalisation: Normalisation) -> None:
    source, spec = float_source()
    images, _ = source.fetch(np.arange(5))
    prepared = Preprocess(replace(spec, normalisation=normalisation))(
        channels_last_view(torch.from_numpy(images))
    )
    assert np.array_equal(prepared.permute(0, 2, 3, 1).numpy(), images)


@pytest.mark.parametrize("normalisation", ["standardise", "imagenet"])
def test_neither_batch_nor_threads_change_a_bit(normalisation: Normalisation) -> None:
    source = small_source(height=130, width=120)
    spec = replace(spec_of_small(source), normalisation=normalisation)
    images = channels_last_view(torch.from_numpy(source.fetch(np.arange(3))[0]))
    whole = Preprocess(spec)(images)
    threads = torch.get_num_threads()
    for number in (1, 2):
        torch.set_num_threads(number)
        try:
            for index in range(3):
                assert torch.equal(Preprocess(spec)(images[index : index + 1])[0], whole[index])
        finally:
            torch.set_num_threads(threads)
