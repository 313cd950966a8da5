"""The chain of techniques on images with masks, and what chance decides for batches."""

import numpy as np
import pytest
import torch

from drivetrain.data.augment.chain import AnyAugmentation, DenseAugmentation
from drivetrain.data.preprocess import channels_last_view
from tests.data.augment.by_hand import places_of
from tests.data.augment.dense_chains import EVERYTHING, PREPROCESS, SYSTEMS
from tests.data.augment.dense_helpers import Plane, bilinear_mirrored
from tests.data.augment.helpers import in_pass, numbers
from tests.data.bilinear import bilinear_by_hand
from tests.data.dense_samples import Bytes, stored_pairs


def prepared(
    augmentation: DenseAugmentation, pixels: Bytes, masks: Bytes, *, first: int = 0, number: int = 0
) -> tuple[torch.Tensor, torch.Tensor]:
    """Samples first.. in one batch, as they are in a pass over the data."""
    indices = numbers(len(pixels), first=first)
    drawn = augmentation.draw(indices, passes=in_pass(number, indices), usable=indices)
    return augmentation.prepare(
        channels_last_view(torch.from_numpy(pixels)),
        torch.from_numpy(masks),
        preprocess=PREPROCESS,
        draws=torch.from_numpy(drawn.values),
        mix=None,
    )


def by_hand(pixels: Plane, mask: Plane, draws: list[float]) -> tuple[Plane, Plane]:
    """The systems' chain in float64: the image, and the share of class 1 before it is cut at one half."""
    across, down, top, left, bottom, right, delta = draws
    image = np.pad(bilinear_by_hand(pixels / 127.5 - 1, 26), 6)
    label = (np.pad(bilinear_by_hand(mask, 26), 6) >= 0.5).astype(float)
    if across:
        image, label = image[:, ::-1], label[:, ::-1]
    if down:
        image, label = image[::-1], label[::-1]
    y, x = places_of([top, left, bottom, right], 38, 38)
    image = np.clip(bilinear_mirrored(image, y, x) + delta, -1, 1)
    return image, bilinear_mirrored(label, y, x)[6:-6, 6:-6]


def test_the_systems_chain_equals_a_computation_by_hand() -> None:
    pixels, masks = stored_pairs(8, 40, 42)
    indices = numbers(8)
    drawn = SYSTEMS.draw(indices, passes=in_pass(4, indices), usable=indices)
    assert drawn.mix is None
    assert drawn.values.shape == (8, 7)
    images, labels = prepared(SYSTEMS, pixels, masks, number=4)
    assert images.shape == (8, 1, 38, 38)
    assert labels.shape == (8, 26, 26, 1)
    for index, row in enumerate(drawn.values.astype(float).tolist()):
        image, share = by_hand(pixels[index, ..., 0].astype(float), masks[index, ..., 0].astype(float), row)
        assert np.abs(images[index, 0].numpy() - image).max() < 1e-5
        is_clear = np.abs(share - 0.5) > 1e-4
        assert np.array_equal(labels[index, ..., 0].numpy()[is_clear], (share >= 0.5)[is_clear])
    others, _ = prepared(SYSTEMS, pixels, masks, number=5)
    assert (others - images).abs().max() > 0.5


def test_another_order_of_the_same_techniques_is_another_chain() -> None:
    pixels, masks = stored_pairs(8, 40, 42)
    reordered = DenseAugmentation(3, (*SYSTEMS.techniques[2:], *SYSTEMS.techniques[:2]))
    assert not torch.allclose(
        prepared(SYSTEMS, pixels, masks)[0], prepared(reordered, pixels, masks)[0], atol=0.01
    )


@pytest.mark.parametrize("augmentation", [SYSTEMS, EVERYTHING])
def test_neither_the_cut_nor_the_company_changes_a_sample(augmentation: DenseAugmentation) -> None:
    pixels, masks = stored_pairs(6, 40, 42, codes=True)
    whole = prepared(augmentation, pixels, masks)
    for start, stop in ((0, 1), (1, 4), (4, 6)):
        part = prepared(augmentation, pixels[start:stop], masks[start:stop], first=start)
        assert torch.equal(part[0], whole[0][start:stop])
        assert torch.equal(part[1], whole[1][start:stop])
    moved = prepared(augmentation, pixels[:1], masks[:1], first=1)
    assert not torch.equal(moved[0], whole[0][:1])


def test_draws_belong_to_seed_pass_and_sample() -> None:
    indices = numbers(24, first=5)
    whole = EVERYTHING.draw(indices, passes=in_pass(1, indices), usable=indices).values
    cut = EVERYTHING.draw(
        indices.reshape(3, 4, 2), passes=in_pass(1, indices).reshape(3, 4, 2), usable=indices
    )
    assert np.array_equal(cut.values.reshape(whole.shape), whole)
    other_seed = DenseAugmentation(4, EVERYTHING.techniques)
    for other in (
        EVERYTHING.draw(indices, passes=in_pass(2, indices), usable=indices),
        EVERYTHING.draw(indices + 24, passes=in_pass(1, indices), usable=indices),
        other_seed.draw(indices, passes=in_pass(1, indices), usable=indices),
    ):
        assert (other.values[:, 2:] != whole[:, 2:]).mean() > 0.99


def test_feeds_know_how_much_it_takes() -> None:
    asked: AnyAugmentation = EVERYTHING
    assert asked.images_per_sample == 1
    assert asked.numbers_per_sample == 1 + 2 + 1 + 2 + 4 + 1 + 1 + 2
    assert EVERYTHING.has_effect
    assert not DenseAugmentation(3, ()).has_effect


def test_the_whole_chain_is_one_graph() -> None:
    pixels, masks = stored_pairs(2, 40, 42)
    indices = numbers(2)
    draws = torch.from_numpy(EVERYTHING.draw(indices, passes=indices, usable=indices).values)
    images, labels = channels_last_view(torch.from_numpy(pixels)), torch.from_numpy(masks)

    def prepare(images: torch.Tensor, labels: torch.Tensor, draws: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return EVERYTHING.prepare(images, labels, preprocess=PREPROCESS, draws=draws)

    compiled = torch.compile(prepare, fullgraph=True, backend="eager")
    expected = prepare(images, labels, draws)
    for found, wanted in zip(compiled(images, labels, draws), expected, strict=True):
        assert torch.equal(found, wanted)
