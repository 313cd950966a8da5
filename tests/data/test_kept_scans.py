"""A folder is looked at once; the next start remembers, unless a file has changed."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from drivetrain.data import held_pixels, image_size, kept_scans, mask_images, mask_pixels, mask_scan
from drivetrain.data.image_folder import ImageRequest, open_image_folder
from drivetrain.data.mask_folder import open_mask_folder
from drivetrain.data.mask_pages import OpenVolumes
from drivetrain.data.masked_splits import MaskedSplits
from drivetrain.errors import BadInputError
from tests.data.folders import truncate, write_images
from tests.data.masks import classes, colour, grey, save, write_pairs, write_volume

Write = Callable[[Path], Path]


@pytest.fixture(autouse=True)
def remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of the test's own, for which files of a moment ago are old enough."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(kept_scans, "_SETTLED_S", 0.0)
    return tmp_path / "cache" / "drivetrain" / "scans"


def _objects(folder: Path) -> Path:
    for name in ("a", "b"):
        save(folder / name / "images" / f"{name}.png", colour())
        for number in range(3):
            one = np.zeros((12, 10), dtype=np.uint8)
            one[4 * number : 4 * number + 2, 2:5] = 255
            save(folder / name / "masks" / f"{number}.png", one)
    return folder


@contextmanager
def _counting_decodes(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The files whose masks are decoded inside."""
    decoded: list[str] = []

    def count(image: Image.Image) -> Any:
        decoded.append(image.mode)
        return decode(image)

    with monkeypatch.context() as patch:
        decode = mask_pixels.decode_mask
        patch.setattr(mask_scan, "decode_mask", count)
        patch.setattr(mask_images, "decode_mask", count)
        yield decoded


def _content(opened: MaskedSplits) -> list[Any]:
    pairs = [opened.train.whole(index) for index in range(len(opened.train))]
    arrays = [(image.tobytes(), image.shape, mask.tobytes()) for image, mask in pairs]
    return [asdict(opened.spec), opened.warnings, arrays]


@pytest.mark.parametrize("write", [write_pairs, write_volume, _objects])
def test_the_second_start_decodes_nothing_and_finds_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    folder = str(write(tmp_path / "cells"))
    first = open_mask_folder(folder)
    with _counting_decodes(monkeypatch) as decoded:
        second = open_mask_folder(folder)
        assert decoded == []
    assert _content(second) == _content(first)
    assert [second.train.size(index) for index in range(len(second.train))] == [
        first.train.size(index) for index in range(len(first.train))
    ]


@pytest.mark.parametrize("write", [write_pairs, write_volume, _objects])
def test_a_start_decodes_each_mask_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Write
) -> None:
    folder = write(tmp_path / "cells")
    with _counting_decodes(monkeypatch) as decoded:
        source = open_mask_folder(str(folder)).train
        for _ in range(2):
            for index in range(len(source)):
                source.whole(index)
                source.objects(index)  # type: ignore[attr-defined]
    masks = 4 if write is write_volume else len([*folder.rglob("masks/*.png")])
    assert len(decoded) == masks


def test_held_pixels_are_those_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path / "c" / "images" / "a.png", colour())
    save(tmp_path / "c" / "images" / "b.png", grey())
    save(tmp_path / "c" / "images" / "d.png", grey(seed=4).astype(np.uint16) * 16)
    for name in "abd":
        save(tmp_path / "c" / "masks" / f"{name}.png", classes(2))
    for version, settings in enumerate(({}, {"channels": 1}, {"white_level": 4095}), start=100):
        monkeypatch.setattr(kept_scans, "_VERSION", version)
        held = open_mask_folder(str(tmp_path / "c"), **settings)  # type: ignore[arg-type]
        again = open_mask_folder(str(tmp_path / "c"), **settings)  # type: ignore[arg-type]
        with monkeypatch.context() as patch:
            patch.setattr(OpenVolumes, "image", None)
            kept = _content(held)
        assert kept == _content(again)


def test_what_finds_no_room_is_decoded_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(write_pairs(tmp_path / "cells"))
    first = _content(open_mask_folder(folder))
    for most_bytes in (0, 130, 400):
        monkeypatch.setattr(held_pixels, "HELD_BYTES", most_bytes)
        monkeypatch.setattr(mask_images, "_HELD_BYTES", most_bytes)
        monkeypatch.setattr(kept_scans, "_VERSION", most_bytes + 100)
        assert _content(open_mask_folder(folder)) == first


def _rewrite(path: Path) -> None:
    save(path, np.full((12, 10), 7, dtype=np.uint8))


def _rewrite_unnoticed_by_length_and_time(path: Path) -> None:
    before, status = path.read_bytes(), path.stat()
    save(path, np.full((12, 10), 7, dtype=np.uint8))
    path.write_bytes(path.read_bytes().ljust(len(before), b"\0")[: max(len(before), path.stat().st_size)])
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.parametrize("change", [_rewrite, _rewrite_unnoticed_by_length_and_time])
def test_a_changed_mask_is_looked_at_again(tmp_path: Path, change: Callable[[Path], None]) -> None:
    folder = write_pairs(tmp_path / "cells")
    assert open_mask_folder(str(folder)).spec.num_classes == 2
    change(folder / "masks" / "1.png")
    assert open_mask_folder(str(folder)).spec.mask_values == ((0,), (7,), (255,))


def test_files_that_come_and_go(tmp_path: Path) -> None:
    folder = write_pairs(tmp_path / "cells")
    assert len(open_mask_folder(str(folder)).train) == 3
    save(folder / "images" / "9.png", grey(5, 5))
    save(folder / "masks" / "9.png", classes(2, 5, 5) * np.uint8(255))
    more = open_mask_folder(str(folder)).train
    assert [more.size(index) for index in range(len(more))] == [(12, 10)] * 3 + [(5, 5)]
    for part in ("images", "masks"):
        (folder / part / "0.png").unlink()
    assert len(open_mask_folder(str(folder)).train) == 3


def test_the_same_files_for_other_images(tmp_path: Path) -> None:
    """An empty folder of objects decides how masks are read, and no file has changed."""
    folder = tmp_path / "cells"
    write_pairs(folder, values=(0, 1, 2))
    assert open_mask_folder(str(folder)).spec.num_classes == 3
    (folder / "masks" / "0").mkdir()
    assert open_mask_folder(str(folder)).spec.num_classes == 2


def test_what_could_not_be_read_is_never_remembered(tmp_path: Path, remembered: Path) -> None:
    folder = write_pairs(tmp_path / "cells")
    truncate(folder / "images" / "1.png")
    for _ in range(2):
        with pytest.raises(BadInputError, match=r"images/1\.png"):
            open_mask_folder(str(folder))
    assert not remembered.exists()


def test_files_of_this_moment_are_not_remembered(
    tmp_path: Path, remembered: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_scans, "_SETTLED_S", 3600.0)
    open_mask_folder(str(write_pairs(tmp_path / "cells")))
    assert not remembered.exists()


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"marks": 1}'])
def test_a_spoilt_memory_is_none(tmp_path: Path, remembered: Path, content: str) -> None:
    folder = str(write_pairs(tmp_path / "cells"))
    first = _content(open_mask_folder(folder))
    (kept,) = remembered.iterdir()
    kept.write_text(content)
    assert _content(open_mask_folder(folder)) == first


def test_a_memory_of_another_shape_is_none(tmp_path: Path, remembered: Path) -> None:
    folder = str(write_pairs(tmp_path / "cells"))
    first = _content(open_mask_folder(folder))
    (kept,) = remembered.iterdir()
    text = kept.read_text()
    assert '"looks"' in text
    kept.write_text(text.replace('"looks"', '"glances"'))
    assert _content(open_mask_folder(folder)) == first


def test_a_user_without_a_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("drivetrain.data.kept_scans.cache_folder", lambda: None)
    folder = str(write_pairs(tmp_path / "cells"))
    assert _content(open_mask_folder(folder)) == _content(open_mask_folder(folder))


def test_the_size_of_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_images(tmp_path / "photos", {"cat": 2, "dog": 2})
    request = ImageRequest(dataset="image-folder")
    assert open_image_folder(str(folder), request=request).spec.height == 8
    with monkeypatch.context() as patch:
        patch.setattr(image_size, "_look_for_size", None)
        assert open_image_folder(str(folder), request=request).spec.height == 8
    write_images(folder, {"emu": 1}, sizes=((9, 9),))
    assert open_image_folder(str(folder), request=request).spec.height == image_size.DEFAULT_SIZE
    with monkeypatch.context() as patch:
        patch.setattr(image_size, "_look_for_size", None)
        assert open_image_folder(str(folder), request=request).spec.height == image_size.DEFAULT_SIZE
