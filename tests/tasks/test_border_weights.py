"""The border weight map, against its formula object by object."""

import pickle
from time import process_time

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt, label

from drivetrain.data.masked_images import HeldMaskedImages, MaskedImages
from drivetrain.tasks.border_weights import WithBorderWeights, border_codes


def cells(size: int, count: int, *, gap: float = 3.0) -> NDArray[np.uint8]:
    """Cells around random points, with membranes between them."""
    points = np.random.default_rng(2).uniform(0, size, (count, 2))
    y, x = np.mgrid[:size, :size]
    distances = np.sort(np.hypot(y[..., None] - points[:, 0], x[..., None] - points[:, 1]), axis=-1)
    return np.asarray(distances[..., 1] - distances[..., 0] > gap, dtype=np.uint8)


def by_hand(mask: NDArray[np.uint8], sigma: float) -> NDArray[np.float64]:
    """One distance map of the whole image per object, the two smallest at every pixel."""
    maps = []
    for number in np.unique(mask[mask > 0]):
        parts, count = label(mask == number)
        maps += [distance_transform_edt(parts != part) for part in range(1, count + 1)]
    nearest, second = np.sort(np.stack(maps), axis=0)[:2]
    return np.asarray(255 * np.exp(-((nearest + second) ** 2) / (2 * sigma**2)))


@pytest.mark.parametrize("sigma", [1.0, 5.0, 30.0])
def test_equals_the_formula(sigma: float) -> None:
    mask = cells(60, 12)
    codes = border_codes(mask, sigma=sigma)
    assert codes.dtype == np.uint8
    assert np.abs(codes - by_hand(mask, sigma)).max() <= 0.5 + 1e-9
    assert np.abs(codes - by_hand(mask, sigma * 1.2)).max() > 1


def test_objects_of_other_classes_count_too() -> None:
    mask = cells(40, 6)
    mask[:, 20:] *= 2
    assert np.abs(border_codes(mask, sigma=4.0) - by_hand(mask, 4.0)).max() <= 0.5 + 1e-9


def test_a_worked_line() -> None:
    """Objects at pixels 0 and 4: sums of distances 4, 4, 4, 4, 4, then 1 + 5 and 2 + 6."""
    mask = np.array([[1, 0, 0, 0, 1, 0, 0]], dtype=np.uint8)
    expected = [round(255 * np.exp(-(total**2) / 18)) for total in (4, 4, 4, 4, 4, 6, 8)]
    assert border_codes(mask, sigma=3.0).tolist() == [expected]


@pytest.mark.parametrize("value", [0, 1])
def test_fewer_than_two_objects_have_nothing_between_them(value: int) -> None:
    assert not border_codes(np.full((9, 9), value, dtype=np.uint8), sigma=5.0).any()


def test_a_large_image_of_many_objects_is_quick() -> None:
    lines = np.arange(512) % 40 > 3
    mask = (lines[:, None] & lines).astype(np.uint8)
    started = process_time()
    codes = border_codes(mask, sigma=5.0)
    assert process_time() - started < 2
    assert codes[:40, :40].max() > 100


def held() -> HeldMaskedImages:
    masks = np.stack([cells(30, 4), cells(30, 7)])[..., np.newaxis]
    images = np.random.default_rng(1).integers(0, 256, (2, 30, 30, 1), dtype=np.uint8)
    return HeldMaskedImages(images=images, masks=masks, names=("a", "b"))


def test_codes_become_a_second_label_channel() -> None:
    source = held()
    weighted: MaskedImages = WithBorderWeights(source, 5.0)
    assert len(weighted) == 2
    assert (weighted.name(1), weighted.size(1)) == ("b", (30, 30))
    for index in (1, 0, 1):
        image, labels = weighted.whole(index)
        assert np.array_equal(image, source.images[index])
        assert labels.dtype == np.uint8
        assert np.array_equal(labels[..., 0], source.masks[index, ..., 0])
        assert np.array_equal(labels[..., 1], border_codes(source.masks[index, ..., 0], sigma=5.0))
    again = pickle.loads(pickle.dumps(weighted))
    assert np.array_equal(again.whole(1)[1], weighted.whole(1)[1])


def test_codes_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []

    def counted(mask: NDArray[np.uint8], *, sigma: float, background: int) -> NDArray[np.uint8]:
        calls.append(sigma)
        return mask

    monkeypatch.setattr("drivetrain.tasks.border_weights.border_codes", counted)
    weighted = WithBorderWeights(held(), 5.0)
    for index in (0, 1, 0, 1):
        weighted.whole(index)
    assert calls == [5.0, 5.0]


def test_the_background_may_be_any_class() -> None:
    cells = np.ones((9, 9), np.uint8)
    cells[4] = 0
    swapped = 1 - cells
    assert border_codes(cells, sigma=3.0).any()
    assert np.array_equal(border_codes(swapped, sigma=3.0, background=1), border_codes(cells, sigma=3.0))
    assert not border_codes(swapped, sigma=3.0).any()
