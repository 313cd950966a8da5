"""Folders of images with masks, opened whole."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.decode import BadSampleError
from drivetrain.data.masks import page_images as mask_images
from drivetrain.data.masks import scan as mask_scan
from drivetrain.data.masks.mask_folder import open_mask_folder
from drivetrain.data.masks.masked_images import MaskedImages, ObjectImages
from tests.data.folders import truncate
from tests.data.mask_files import classes, colour, grey, save, save_palette, write_pairs


def test_grey_images_with_binary_masks(tmp_path: Path) -> None:
    opened = open_mask_folder(str(write_pairs(tmp_path)))
    assert isinstance(opened.train, MaskedImages)
    assert (len(opened.train), opened.validation, opened.test, opened.warnings) == (3, None, None, [])
    spec = opened.spec
    assert (spec.task, spec.normalisation, spec.image_dtype) == ("segmentation", "symmetric", "uint8")
    assert (spec.channels, spec.height, spec.width, spec.num_classes) == (1, 12, 10, 2)
    assert (spec.class_names, spec.mask_values) == (("background", "foreground"), ((0,), (255,)))
    for index in range(3):
        image, mask = opened.train.whole(index)
        assert opened.train.name(index) == str(tmp_path / "images" / f"{index}.png")
        assert opened.train.size(index) == image.shape[:2] == (12, 10)
        assert np.array_equal(image[..., 0], grey(seed=index))
        assert mask.dtype == np.uint8
        assert np.array_equal(mask[..., 0], classes(2, seed=index))


def test_colour_images_of_odd_sizes_with_three_colours(tmp_path: Path) -> None:
    shown = np.array([(0, 0, 0), (0, 200, 0), (255, 0, 0)], dtype=np.uint8)
    for number, (height, width) in enumerate(((13, 9), (7, 21))):
        save(tmp_path / f"{number}.png", colour(height, width, seed=number))
        save(tmp_path / f"{number}_mask.png", shown[classes(3, height, width, seed=number)])
    save(tmp_path / "2.tif", grey(5, 5))
    save(tmp_path / "2_mask.png", np.zeros((5, 5), dtype=np.uint8))
    (tmp_path / "classes.json").write_text(
        json.dumps({"sky": [0, 0, 0], "sea": [255, 0, 0], "reef": [0, 200, 0]})
    )
    opened = open_mask_folder(str(tmp_path))
    assert (opened.spec.channels, opened.spec.height, opened.spec.width) == (3, 13, 21)
    assert opened.spec.class_names == ("sky", "sea", "reef")
    assert opened.spec.mask_values == ((0, 0, 0), (255, 0, 0), (0, 200, 0))
    assert [opened.train.size(index) for index in range(3)] == [(13, 9), (7, 21), (5, 5)]
    image, mask = opened.train.whole(1)
    assert np.array_equal(image, colour(7, 21, seed=1))
    assert np.array_equal(mask[..., 0], np.array([0, 2, 1])[classes(3, 7, 21, seed=1)])
    small, _ = opened.train.whole(2)
    assert np.array_equal(small, np.repeat(grey(5, 5)[..., None], 3, axis=-1))
    assert open_mask_folder(str(tmp_path), channels=1).train.whole(0)[0].shape == (13, 9, 1)


def test_sixteen_bits_palette_masks_and_transparency(tmp_path: Path) -> None:
    deep = grey(seed=3).astype(np.uint16) * 257
    save(tmp_path / "images" / "a.tif", deep)
    indices = classes(3)
    save_palette(tmp_path / "masks" / "a.png", indices, [(9, 9, 9), (255, 0, 0), (0, 0, 255)])
    opened = open_mask_folder(str(tmp_path))
    image, mask = opened.train.whole(0)
    assert np.array_equal(image[..., 0], grey(seed=3))
    assert np.array_equal(mask[..., 0], indices)
    rgba = np.dstack([colour(), np.full((12, 10), 255, dtype=np.uint8)])
    save(tmp_path / "images" / "a.png", rgba)
    (tmp_path / "images" / "a.tif").unlink()
    assert np.array_equal(open_mask_folder(str(tmp_path)).train.whole(0)[0], colour())


def test_a_mask_for_each_object(tmp_path: Path) -> None:
    save(tmp_path / "images" / "a.png", grey())
    save(tmp_path / "images" / "b.png", grey())
    (tmp_path / "masks" / "b").mkdir(parents=True)
    expected = np.zeros((12, 10), dtype=np.uint8)
    for number, rows in enumerate((slice(1, 3), slice(6, 9))):
        one = np.zeros((12, 10), dtype=np.uint8)
        one[rows, 2:5] = 1 + 254 * number
        expected[rows, 2:5] = 1
        save(tmp_path / "masks" / "a" / f"{number}.png", one)
    opened = open_mask_folder(str(tmp_path))
    assert opened.spec.class_names == ("background", "foreground")
    assert np.array_equal(opened.train.whole(0)[1][..., 0], expected)
    assert not opened.train.whole(1)[1].any()
    assert isinstance(opened.train, ObjectImages)
    objects = opened.train.objects(0)
    assert objects is not None
    assert [one.box for one in objects] == [(slice(1, 3), slice(2, 5)), (slice(6, 9), slice(2, 5))]
    assert all(one.is_own.all() for one in objects)
    assert opened.train.objects(1) is None


def test_splits_share_channels_and_classes(tmp_path: Path) -> None:
    write_pairs(tmp_path / "train", values=(0, 1))
    write_pairs(tmp_path / "val", values=(0, 1, 2), count=2)
    save(tmp_path / "test" / "images" / "x.png", colour())
    save(tmp_path / "test" / "masks" / "x.png", classes(2))
    opened = open_mask_folder(str(tmp_path))
    assert opened.validation is not None
    assert opened.test is not None
    assert (len(opened.train), len(opened.validation), len(opened.test)) == (3, 2, 1)
    assert (opened.spec.channels, opened.spec.num_classes) == (3, 3)
    assert opened.train.whole(0)[0].shape[-1] == 3


def test_it_can_be_sent_to_another_process_and_holds_what_it_decoded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = open_mask_folder(str(write_pairs(tmp_path))).train
    first = source.whole(0)
    assert source.whole(0) is first
    packed = pickle.dumps(source)
    assert len(packed) < 3000
    assert np.array_equal(pickle.loads(packed).whole(0)[0], first[0])
    monkeypatch.setattr(mask_images, "_HELD_BYTES", 0)
    full = pickle.loads(packed)
    assert full.whole(0) is not full.whole(0)


def test_a_mask_of_another_size(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    save(tmp_path / "masks" / "1.png", classes(2, 12, 11))
    message = r"masks/1\.png is 12x11, but its image \S*images/1\.png is 12x10 .*the same size"
    for policy in ("error", "skip"):
        with pytest.raises(BadInputError, match=message):
            open_mask_folder(str(tmp_path), on_bad_sample=policy)


def test_a_turned_photograph_has_the_size_it_shows(tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    photograph = Image.fromarray(colour(16, 24))
    exif = photograph.getexif()
    exif[0x0112] = 6
    photograph.save(tmp_path / "images" / "a.jpg", exif=exif, quality=95)
    save(tmp_path / "masks" / "a.png", classes(2, 24, 16))
    source = open_mask_folder(str(tmp_path)).train
    assert source.size(0) == source.whole(0)[0].shape[:2] == (24, 16)


def test_a_label_outside_the_classes(tmp_path: Path) -> None:
    write_pairs(tmp_path, values=(0, 1, 2))
    mask = classes(3)
    mask[4, 4] = 7
    save(tmp_path / "masks" / "1.png", mask)
    with pytest.raises(
        BadInputError, match=r"masks/1\.png contains the value 7, .*3 classes; .*--num-classes 8"
    ):
        open_mask_folder(str(tmp_path), num_classes=3)
    skipping = open_mask_folder(str(tmp_path), num_classes=3, on_bad_sample="skip").train
    skipping.whole(0)
    with pytest.raises(BadSampleError, match=r"images/1\.png .*masks/1\.png: it contains the value 7"):
        skipping.whole(1)
    assert open_mask_folder(str(tmp_path), num_classes=8).spec.num_classes == 8
    opened = open_mask_folder(str(tmp_path))
    assert opened.spec.class_names == ("0", "1", "2", "7")
    assert "The masks contain the values 0, 1, 2, 7, and each is read as a class" in opened.warnings[0]
    (tmp_path / "classes.txt").write_text("a\nb\nc\n")
    with pytest.raises(BadInputError, match=r"contains the value 7, .*add the class to the file that names"):
        open_mask_folder(str(tmp_path))


def test_of_many_masks_all_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mask_scan, "_MOST_DECODED", 2)
    write_pairs(tmp_path, count=4, values=(0, 1))
    save(tmp_path / "masks" / "3.png", classes(3))
    with pytest.raises(BadInputError, match=r"masks/3\.png contains the value 2, .*--num-classes 3\."):
        open_mask_folder(str(tmp_path), num_classes=2)
    assert open_mask_folder(str(tmp_path)).spec.num_classes == 3
    truncate(tmp_path / "masks" / "3.png")
    with pytest.raises(BadInputError, match=r"masks/3\.png.*--on-bad-sample skip"):
        open_mask_folder(str(tmp_path))
    save(tmp_path / "masks" / "3.png", classes(2, 3, 3))
    with pytest.raises(BadInputError, match="give both the same size"):
        open_mask_folder(str(tmp_path))


@pytest.mark.parametrize(
    ("values", "outside", "num_classes", "remedy"),
    [
        ((0, 1), 2, None, "2 classes; correct the mask, or use --num-classes 3;"),
        ((0, 1), 2, 2, "2 classes; correct the mask, or use --num-classes 3;"),
        ((0, 255), 9, None, "give the value of each class in classes.json;"),
        ((0, 1), 255, 2, "leave out --num-classes 2;"),
    ],
)
def test_of_very_many_masks_a_selection_tells_the_coding_and_the_rest_is_met_later(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    values: tuple[int, ...],
    outside: int,
    num_classes: int | None,
    remedy: str,
) -> None:
    monkeypatch.setattr(mask_scan, "_MOST_DECODED", 2)
    monkeypatch.setattr(mask_scan, "_MOST_PIXELS_OF_MASKS", 0)
    write_pairs(tmp_path, count=4, values=values)
    mask = np.array(values, dtype=np.uint8)[classes(2)]
    mask[0, 0] = outside
    save(tmp_path / "masks" / "3.png", mask)
    source = open_mask_folder(str(tmp_path), num_classes=num_classes).train
    message = rf"masks/3\.png: it contains the value {outside}, which is none of the .*{remedy}"
    with pytest.raises(BadSampleError, match=message):
        source.whole(3)
    source.whole(1)
    save(tmp_path / "masks" / "3.png", classes(2, 3, 3))
    with pytest.raises(BadInputError, match="give both the same size"):
        open_mask_folder(str(tmp_path))


def test_images_without_a_known_range(tmp_path: Path) -> None:
    write_pairs(tmp_path, count=2)
    for number in range(2):
        (tmp_path / "images" / f"{number}.png").unlink()
        save(tmp_path / "images" / f"{number}.tif", grey().astype(np.float32))
    with pytest.raises(BadInputError) as refused:
        open_mask_folder(str(tmp_path))
    assert str(refused.value).endswith(
        "images/0.tif cannot be read: its pixels are floating-point numbers, and the file does not say which "
        "value is white; save images and masks as PNG or TIFF files with 8 or 16 bits per channel."
    )
    save(tmp_path / "images" / "1.tif", grey())
    with pytest.raises(
        BadInputError, match="save it with 8 or 16 bits per channel, or use --on-bad-sample skip"
    ):
        open_mask_folder(str(tmp_path))
    save(tmp_path / "images" / "0.tif", grey().astype(np.uint16))
    assert len(open_mask_folder(str(tmp_path)).train) == 2


@pytest.mark.parametrize("part", ["images", "masks"])
@pytest.mark.parametrize("damage", ["truncated", "empty", "text"])
def test_files_that_cannot_be_read(tmp_path: Path, part: str, damage: str) -> None:
    write_pairs(tmp_path)
    path = tmp_path / part / "1.png"
    if damage == "truncated":
        truncate(path)
    else:
        path.write_bytes(b"" if damage == "empty" else b"this is no image")
    with pytest.raises(
        BadInputError, match=rf"{part}/1\.png.*use --on-bad-sample skip to leave out unreadable"
    ):
        open_mask_folder(str(tmp_path))
    opened = open_mask_folder(str(tmp_path), on_bad_sample="skip")
    assert [opened.train.size(index) for index in range(3)] == [(12, 10)] * 3
    opened.train.whole(0)
    with pytest.raises(BadSampleError) as raised:
        opened.train.whole(1)
    assert raised.value.name.endswith("images/1.png")


def test_where_nothing_can_be_read(tmp_path: Path) -> None:
    write_pairs(tmp_path, count=1)
    (tmp_path / "masks" / "0.png").write_bytes(b"")
    with pytest.raises(
        BadInputError, match=r"No mask in --data-dir .* can be read \(.*the file is empty\); save the masks"
    ):
        open_mask_folder(str(tmp_path), on_bad_sample="skip")


def test_jpeg_masks(tmp_path: Path) -> None:
    write_pairs(tmp_path, count=1)
    box = np.zeros((32, 24), dtype=np.uint8)
    box[4:20, 6:18] = 255
    save(tmp_path / "images" / "j.png", grey(32, 24))
    save(tmp_path / "masks" / "j.jpg", box)
    opened = open_mask_folder(str(tmp_path))
    assert "1 masks are JPEG files" in opened.warnings[0]
    assert np.array_equal(opened.train.whole(1)[1][..., 0], box // 255)
    for values in (classes(3, 32, 24), grey(32, 24)):
        save(tmp_path / "masks" / "j.jpg", values)
        with pytest.raises(
            BadInputError, match=r"masks/j\.jpg is a JPEG file that is not just black and white.*PNG"
        ):
            open_mask_folder(str(tmp_path))


def test_advice(tmp_path: Path) -> None:
    write_pairs(tmp_path, values=(0, 2))
    save(tmp_path / "images" / "0.png", np.full((12, 10), 4095, dtype=np.uint16))
    for number in (1, 2):
        save(tmp_path / "images" / f"{number}.png", np.zeros((12, 10), dtype=np.uint8))
    absent, dark = open_mask_folder(str(tmp_path), num_classes=3).warnings
    assert absent == "The masks contain no pixel of class 1."
    assert "no pixel is brighter than 16 of 255" in dark


def test_no_folder_and_impossible_channels(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="needs --data-dir DIR"):
        open_mask_folder(None)
    with pytest.raises(BadInputError, match="contains no images with masks"):
        open_mask_folder(str(tmp_path))
    with pytest.raises(BadInputError, match=r"\(--channels 3\) or grey \(--channels 1\)"):
        open_mask_folder(str(write_pairs(tmp_path)), channels=4)
