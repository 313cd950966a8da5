"""The border weight map, against its formula object by object."""

import pickle
from pathlib import Path
from time import process_time

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.ndimage import distance_transform_edt

from drivetrain.data.masks.border_weights import WithBorderWeights, border_codes, codes_between
from drivetrain.data.masks.mask_folder import open_mask_folder
from drivetrain.data.masks.masked_images import HeldMaskedImages, MaskedImages, ObjectPixels, cut_out
from tests.data.mask_files import grey, save
from tests.data.masks.border_formula import by_hand


def cells(size: int, count: int, *, gap: float = 3.0) -> NDArray[np.uint8]:
    """Cells around random points, with membranes between them."""
    points = np.random.default_rng(2).uniform(0, size, (count, 2))
    y, x = np.mgrid[:size, :size]
    distances = np.sort(np.hypot(y[..., None] - points[:, 0], x[..., None] - points[:, 1]), axis=-1)
    return np.asarray(distances[..., 1] - distances[..., 0] > gap, dtype=np.uint8)


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

    monkeypatch.setattr("drivetrain.data.masks.border_weights.border_codes", counted)
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


def boxes(*places: tuple[slice, slice]) -> list[NDArray[np.uint8]]:
    """A mask (20, 24) for each box."""
    masks = [np.zeros((20, 24), np.uint8) for _ in places]
    for mask, place in zip(masks, places, strict=True):
        mask[place] = 1
    return masks


TOUCHING = boxes(np.s_[4:12, 3:10], np.s_[4:12, 10:18])


def test_objects_that_touch_or_lie_over_each_other_are_two() -> None:
    for masks in (TOUCHING, boxes(np.s_[2:18, 2:20], np.s_[6:9, 6:10])):
        objects = [one for mask in masks if (one := cut_out(mask != 0)) is not None]
        codes = codes_between(objects, shape=(20, 24), sigma=3.0)
        distances = sum(distance_transform_edt(mask == 0) for mask in masks)
        assert np.abs(codes - 255 * np.exp(-(distances**2) / 18)).max() <= 0.5 + 1e-9
        assert codes.max() > 200
        assert not border_codes(np.maximum(*masks), sigma=3.0).any()


def test_an_object_without_pixels_is_none() -> None:
    assert cut_out(np.zeros((4, 5), dtype=np.bool_)) is None
    found = cut_out(np.eye(3, dtype=np.bool_))
    assert isinstance(found, ObjectPixels)
    assert (found.box, found.is_own.sum()) == ((slice(0, 3), slice(0, 3)), 3)


def test_files_of_single_objects_keep_them_apart(tmp_path: Path) -> None:
    for number, mask in enumerate(TOUCHING):
        save(tmp_path / f"a_mask_{number}.png", mask * 255)
    save(tmp_path / "a.png", grey(20, 24))
    save(tmp_path / "b.png", grey(20, 24))
    save(tmp_path / "b_mask.png", np.maximum(*TOUCHING) * np.uint8(255))
    weighted = WithBorderWeights(open_mask_folder(str(tmp_path)).train, 3.0)
    apart, merged = (weighted.whole(index)[1] for index in range(2))
    assert np.array_equal(apart[..., 0], merged[..., 0])
    distances = sum(distance_transform_edt(mask == 0) for mask in TOUCHING)
    assert np.abs(apart[..., 1] - 255 * np.exp(-(distances**2) / 18)).max() <= 0.5 + 1e-9
    assert not merged[..., 1].any()
    assert not weighted.is_idle()


def test_idle_where_nothing_lies_between_objects(tmp_path: Path) -> None:
    for number in range(2):
        save(tmp_path / "images" / f"{number}.png", grey(20, 24))
        save(tmp_path / "masks" / f"{number}.png", np.maximum(*TOUCHING) * np.uint8(255))
    assert WithBorderWeights(open_mask_folder(str(tmp_path)).train, 3.0).is_idle()
    save(tmp_path / "masks" / "1.png", np.maximum(*boxes(np.s_[:, :9], np.s_[:, 11:])) * np.uint8(255))
    source = open_mask_folder(str(tmp_path), on_bad_sample="skip").train
    (tmp_path / "images" / "0.png").write_bytes(b"")
    assert not WithBorderWeights(source, 3.0).is_idle()
