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

from drivetrain.core.errors import BadInputError
from drivetrain.data.files import folder_files, kept_scans
from drivetrain.data.files.folder_files import FolderStore, list_classes
from drivetrain.data.masks import mask_pixels
from drivetrain.data.masks import mask_pixels as held_pixels
from drivetrain.data.masks import page_images as mask_images
from drivetrain.data.masks import scan as mask_scan
from drivetrain.data.masks.mask_folder import open_mask_folder
from drivetrain.data.masks.masked_images import MaskedSplits
from drivetrain.data.masks.pages import OpenVolumes
from drivetrain.data.sources import stored_images as image_size
from drivetrain.data.sources.image_folder import open_image_folder
from drivetrain.data.sources.stored_images import ImageRequest, common_size
from drivetrain.data.splits import open_data
from drivetrain.recipe.schema import Recipe
from tests.core.watcher import watched
from tests.data.folders import truncate, write_images
from tests.data.mask_files import classes, colour, grey, save, write_pairs, write_volume

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
    monkeypatch.setattr("drivetrain.data.files.kept_scans.cache_folder", lambda: None)
    folder = str(write_pairs(tmp_path / "cells"))
    assert _content(open_mask_folder(folder)) == _content(open_mask_folder(folder))


def test_another_version_of_the_package_looks_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = str(write_pairs(tmp_path / "cells"))
    open_mask_folder(folder)
    monkeypatch.setattr(kept_scans, "VERSION", "0.0.0")
    with _counting_decodes(monkeypatch) as decoded:
        open_mask_folder(folder)
    assert len(decoded) == 3


@contextmanager
def _counting_headers(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The files whose sizes are asked for inside."""
    asked: list[str] = []

    def count(self: FolderStore, index: int) -> tuple[int, int]:
        asked.append(self.names[index])
        return size(self, index)

    with monkeypatch.context() as patch:
        size = FolderStore.size
        patch.setattr(FolderStore, "size", count)
        yield asked


def test_the_size_of_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_size, "_HEADERS_AT_A_TIME", 2)
    folder = write_images(tmp_path / "photos", {"cat": 4, "dog": 4})
    request = ImageRequest(dataset="image-folder")
    assert open_image_folder(str(folder), request=request).spec.height == 8
    with _counting_headers(monkeypatch) as asked:
        assert open_image_folder(str(folder), request=request).spec.height == 8
    assert sorted(asked) == ["cat/000.png", "cat/001.png"]
    write_images(folder, {"emu": 1}, sizes=((9, 9),))
    assert open_image_folder(str(folder), request=request).spec.height == image_size.DEFAULT_SIZE
    with _counting_headers(monkeypatch) as asked:
        assert open_image_folder(str(folder), request=request).spec.height == image_size.DEFAULT_SIZE
    assert sorted(asked) == ["cat/000.png", "cat/001.png"]


@pytest.mark.parametrize(("most", "sizes"), [(2, ((8, 8), (9, 9))), (4, ((8, 8),))])
def test_what_a_few_headers_tell_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, sizes: tuple[tuple[int, int], ...]
) -> None:
    monkeypatch.setattr(image_size, "_HEADERS_AT_A_TIME", most)
    monkeypatch.setattr(image_size, "KeptScan", None)
    store = list_classes(write_images(tmp_path / "photos", {"cat": 4}, sizes=sizes), ("cat",)).store
    assert common_size(store, refuse_bad=True) == (None if len(sizes) > 1 else (8, 8))


def test_every_look_at_all_files_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(image_size, "_HEADERS_AT_A_TIME", 2)
    folder = str(write_images(tmp_path / "photos", {"cat": 4, "dog": 4}))
    recipe = Recipe(dataset="image-folder", data_dir=folder, validation_fraction=0.0)
    told = watched(lambda: open_data(recipe))
    shown = [line for line in told if line.endswith(" of 8")]
    assert shown == [
        "looking for changed files of 8",
        "looking for animations of 8",
        "looking for changed files of 8",
        "reading image sizes of 8",
        "looking for empty files of 8",
    ]
    again = watched(lambda: open_data(recipe))
    assert [line for line in again if line.endswith(" of 8")] == [
        "looking for changed files of 8",
        "looking for changed files of 8",
        "looking for empty files of 8",
    ]


def _animate(path: Path) -> None:
    frames = [Image.fromarray(colour(seed=number)) for number in range(3)]
    frames[0].save(path, save_all=True, append_images=frames[1:])


def test_animations_among_photographs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_images(tmp_path / "photos", {"cat": 2})
    _animate(folder / "cat" / "moving.gif")
    first = list_classes(folder, ("cat",)).warnings
    assert first == [f"{folder}/cat/moving.gif is an animation; only the first frame is used."]
    with monkeypatch.context() as patch:
        patch.setattr(folder_files, "is_animated_file", None)
        assert list_classes(folder, ("cat",)).warnings == first
    _animate(folder / "cat" / "000.png")
    (warning,) = list_classes(folder, ("cat",)).warnings
    assert "moving.gif" in warning
    assert "000.png" in warning
    monkeypatch.setattr(folder_files, "_MOST_HEADERS", 1)
    assert list_classes(folder, ("cat",)).warnings == first
