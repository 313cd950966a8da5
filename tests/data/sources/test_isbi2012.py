"""ISBI 2012, from small volumes of the same form."""

from pathlib import Path

import numpy as np
import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.tiff_pages import write_pages
from drivetrain.data.masks.masked_images import MaskedImages
from drivetrain.data.sources.isbi2012 import open_isbi2012, unlabelled_volume
from tests.data.sources.isbi_files import PAGES, SIDE, volumes, write_isbi


def test_images_and_classes(tmp_path: Path) -> None:
    images, labels = write_isbi(tmp_path)
    opened = open_isbi2012(str(tmp_path))
    assert isinstance(opened.train, MaskedImages)
    assert (opened.validation, opened.test) == (None, None)
    assert len(opened.train) == PAGES
    assert opened.train.size(0) == (SIDE, SIDE)
    assert opened.train.name(1).endswith("train-volume.tif page 2")
    for index in range(PAGES):
        image, mask = opened.train.whole(index)
        assert image.dtype == mask.dtype == np.uint8
        assert np.array_equal(image[..., 0], images[index])
        assert np.array_equal(mask[..., 0], labels[index] == 255)


def test_spec(tmp_path: Path) -> None:
    write_isbi(tmp_path)
    opened = open_isbi2012(str(tmp_path))
    spec = opened.spec
    assert (spec.task, spec.normalisation, spec.image_dtype, spec.channels) == (
        "segmentation",
        "symmetric",
        "uint8",
        1,
    )
    assert spec.class_names == ("membrane", "cell")
    assert spec.mask_values == ((0,), (255,))
    assert (spec.height, spec.width, spec.num_classes) == (SIDE, SIDE, 2)
    (warning,) = opened.warnings
    assert "contains 5 images of 16x16; the complete data set has 30 of 512x512" in warning


def test_missing_files(tmp_path: Path) -> None:
    with pytest.raises(BadInputError, match="needs --data-dir DIR"):
        open_isbi2012(None)
    with pytest.raises(BadInputError, match="is not an existing folder"):
        open_isbi2012(str(tmp_path / "nowhere"))
    write_isbi(tmp_path)
    (tmp_path / "train-labels.tif").unlink()
    with pytest.raises(BadInputError, match=r"lacks train-labels\.tif; run `drivetrain data fetch isbi2012"):
        open_isbi2012(str(tmp_path))


def test_volumes_that_do_not_fit_each_other(tmp_path: Path) -> None:
    _, labels = write_isbi(tmp_path)
    write_pages(tmp_path / "train-labels.tif", list(labels[:3]))
    with pytest.raises(BadInputError, match=r"train-volume\.tif has 5 pages, but train-labels\.tif has 3"):
        open_isbi2012(str(tmp_path))
    write_pages(tmp_path / "train-labels.tif", list(labels[:, :8]))
    with pytest.raises(BadInputError, match=r"pages of 16x16, but train-labels\.tif of 8x16"):
        open_isbi2012(str(tmp_path))
    write_pages(tmp_path / "train-labels.tif", [labels[0], labels[1, :8], *labels[2:]])
    with pytest.raises(
        BadInputError, match=r"train-labels\.tif has pages of differing sizes.*page 2 is 8x16"
    ):
        open_isbi2012(str(tmp_path))


def test_a_label_that_is_no_class(tmp_path: Path) -> None:
    _, labels = write_isbi(tmp_path)
    labels[3, 2, 1] = 7
    write_pages(tmp_path / "train-labels.tif", list(labels))
    with pytest.raises(BadInputError, match=r"train-labels\.tif page 4 contains the label 7 instead of 0"):
        open_isbi2012(str(tmp_path))


def test_truncated_and_deep_files(tmp_path: Path) -> None:
    images, _ = write_isbi(tmp_path)
    path = tmp_path / "train-volume.tif"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(BadInputError, match=r"train-volume\.tif is truncated or damaged at page 5"):
        open_isbi2012(str(tmp_path))
    write_pages(path, list(images.astype(np.uint16)))
    with pytest.raises(
        BadInputError, match=r"train-volume\.tif contains uint16 grey pixels instead of 8-bit grey"
    ):
        open_isbi2012(str(tmp_path))


def test_the_volume_without_labels(tmp_path: Path) -> None:
    images, _ = volumes()
    assert unlabelled_volume(str(tmp_path)) is None
    write_pages(tmp_path / "test-volume.tif", list(images))
    found = unlabelled_volume(str(tmp_path))
    assert found is not None
    assert np.array_equal(found, images)
