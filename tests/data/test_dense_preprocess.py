"""From stored images and masks to what a segmentation model and its loss see."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from drivetrain.data.preprocess import DensePreprocess, channels_last_view
from tests.data.bilinear import bilinear_by_hand
from tests.data.dense_samples import dense_spec, stored_pairs


def as_images(pixels: np.ndarray) -> torch.Tensor:
    return channels_last_view(torch.from_numpy(pixels))


def test_the_systems_canvas_is_572_and_their_output_388() -> None:
    preprocess = DensePreprocess(dense_spec(512, 512), image_size=388, margin=92)
    assert (preprocess.channels, preprocess.height, preprocess.width) == (1, 572, 572)
    assert preprocess.output_size == preprocess.label_size == (388, 388)
    assert preprocess.padding == 92


def test_images_are_normalised_then_resized_then_padded_with_zeros() -> None:
    pixels, _ = stored_pairs(2, 30, 33)
    prepared = DensePreprocess(dense_spec(30, 33), image_size=22, margin=5)(as_images(pixels))
    assert prepared.shape == (2, 1, 32, 32)
    assert prepared.dtype == torch.float32
    assert prepared.is_contiguous(memory_format=torch.channels_last)
    for index in range(2):
        symmetric = pixels[index, ..., 0] / 127.5 - 1
        expected = np.pad(bilinear_by_hand(symmetric, 22), 5)
        assert np.abs(prepared[index, 0].numpy() - expected).max() < 5e-6
    # Zeros after normalisation are mid-grey, not black.
    assert prepared[0, 0, 0, 0] == 0


def test_black_and_white_become_minus_one_and_one() -> None:
    pixels = np.array([0, 255], dtype=np.uint8).reshape(1, 1, 2, 1)
    prepared = DensePreprocess(dense_spec(1, 2))(as_images(pixels))
    assert prepared.flatten().tolist() == [-1.0, 1.0]


def test_binary_masks_are_resized_bilinear_and_cut_at_one_half() -> None:
    _, masks = stored_pairs(3, 30, 33, codes=True)
    preprocess = DensePreprocess(dense_spec(30, 33), image_size=22, margin=5)
    on_canvas = preprocess.labels(torch.from_numpy(masks))
    assert on_canvas.shape == (3, 32, 32, 2)
    assert on_canvas.dtype == torch.uint8
    for index in range(3):
        shares = bilinear_by_hand(masks[index, ..., 0].astype(float), 22)
        is_clear = np.abs(shares - 0.5) > 1e-6
        found = on_canvas[index, 5:-5, 5:-5, 0].numpy()
        assert np.array_equal(found[is_clear], (shares >= 0.5)[is_clear])
        assert set(np.unique(found).tolist()) == {0, 1}
        codes = bilinear_by_hand(masks[index, ..., 1].astype(float), 22)
        assert np.abs(on_canvas[index, 5:-5, 5:-5, 1].numpy() - codes).max() < 0.501
    border = on_canvas.clone()
    border[:, 5:-5, 5:-5] = 0
    assert not border.any()
    finished = preprocess.finished_labels(on_canvas)
    assert torch.equal(finished, on_canvas[:, 5:-5, 5:-5])


def test_one_half_is_class_1() -> None:
    mask = torch.tensor([[0, 1]], dtype=torch.uint8).view(1, 1, 2, 1)
    assert DensePreprocess(dense_spec(1, 2), image_size=1).labels(mask).item() == 1


def test_more_classes_take_the_nearest_pixel() -> None:
    _, masks = stored_pairs(2, 30, 33, classes=5)
    found = DensePreprocess(dense_spec(30, 33, classes=5), image_size=11).labels(torch.from_numpy(masks))
    rows, columns = (np.floor((np.arange(11) + 0.5) * length / 11).astype(int) for length in (30, 33))
    assert np.array_equal(found.numpy(), masks[:, rows][:, :, columns])
    assert len(np.unique(found)) == 5


def test_without_a_size_and_a_margin_labels_stay() -> None:
    _, masks = stored_pairs(2, 20, 24, classes=3)
    labels = torch.from_numpy(masks)
    preprocess = DensePreprocess(dense_spec(20, 24, classes=3))
    assert torch.equal(preprocess.labels(labels), labels)
    assert torch.equal(preprocess.finished_labels(labels), labels)
    assert (preprocess.height, preprocess.width, preprocess.output_size) == (20, 24, (20, 24))


def test_tiles_come_with_their_margin() -> None:
    preprocess = DensePreprocess(dense_spec(300, 200, tile=16), margin=4)
    assert (preprocess.height, preprocess.width, preprocess.padding) == (24, 24, 0)
    pixels, masks = stored_pairs(3, 24, 24)
    images, labels = preprocess.both(as_images(pixels), torch.from_numpy(masks))
    assert torch.equal(images, as_images(pixels).float() / 127.5 - 1)
    assert np.array_equal(labels.numpy(), masks[:, 4:-4, 4:-4])
    assert preprocess.label_size == (16, 16)


def test_floating_images_are_not_normalised() -> None:
    pixels = stored_pairs(2)[0].astype(np.float32)
    prepared = DensePreprocess(replace(dense_spec(), image_dtype="float32"))(as_images(pixels))
    assert np.array_equal(prepared.permute(0, 2, 3, 1).numpy(), pixels)


@pytest.mark.parametrize("channels", [1, 3])
def test_a_sample_does_not_depend_on_its_batch(channels: int) -> None:
    pixels, masks = stored_pairs(4, 30, 33, codes=True, channels=channels)
    preprocess = DensePreprocess(dense_spec(30, 33, channels=channels), image_size=22, margin=5)
    images, labels = preprocess.both(as_images(pixels), torch.from_numpy(masks))
    for index in range(4):
        alone = preprocess.both(as_images(pixels[[index]]), torch.from_numpy(masks[[index]]))
        assert torch.equal(alone[0][0], images[index])
        assert torch.equal(alone[1][0], labels[index])
