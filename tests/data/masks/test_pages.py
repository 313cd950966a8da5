"""Files of several pages in folders of images with masks: every page is a sample."""

import multiprocessing
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tifffile
from PIL import Image

from drivetrain.core.errors import BadInputError
from drivetrain.data.commands.check_files import check_mask_folder
from drivetrain.data.files.decode import BadSampleError
from drivetrain.data.masks import pages as mask_pages
from drivetrain.data.masks import scan as mask_scan
from drivetrain.data.masks.mask_folder import open_mask_folder
from drivetrain.data.masks.masked_images import MaskedImages, ObjectImages
from drivetrain.data.masks.pages import OpenVolumes, count_pages, file_of, named_page
from drivetrain.data.splits import open_data
from drivetrain.data.training_tiles import masked_of
from drivetrain.recipe.schema import Recipe
from tests.data.mask_files import classes, grey, save, save_pages, write_pairs, write_volume


def _cut(path: Path, share: float) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])


def _names(masked: MaskedImages) -> list[str]:
    return [Path(masked.name(index)).name for index in range(len(masked))]


def test_every_page_is_a_sample(tmp_path: Path) -> None:
    write_pairs(write_volume(tmp_path), count=2)
    source = open_mask_folder(str(tmp_path)).train
    pages = [f"cells.tif page {number}" for number in range(1, 5)]
    assert _names(source) == ["0.png", "1.png", *pages]
    for page in (3, 0, 2, 1):
        image, mask = source.whole(2 + page)
        assert np.array_equal(image[..., 0], grey(seed=page))
        assert np.array_equal(mask[..., 0], classes(2, seed=page))
        assert source.size(2 + page) == (12, 10)


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_pages_of_differing_sizes_are_refused(tmp_path: Path, policy: str) -> None:
    write_volume(tmp_path, sizes=[(12, 10), (12, 10), (6, 5)])
    message = (
        r"^\S*images/cells\.tif has pages of differing sizes: page 1 is 12x10, page 3 is 6x5 "
        r"\(height x width\); save each page as a separate file, or remove the smaller pages\.$"
    )
    with pytest.raises(BadInputError, match=message):
        open_mask_folder(str(tmp_path), on_bad_sample=policy)
    with pytest.raises(BadInputError, match=message):
        check_mask_folder(str(tmp_path))
    write_volume(tmp_path, sizes=[(12, 10)] * 3)
    assert len(open_mask_folder(str(tmp_path), on_bad_sample=policy).train) == 3


def test_files_may_differ_in_size_where_pages_may_not(tmp_path: Path) -> None:
    sizes = [(12, 10), (8, 30), (21, 9)]
    for number, size in enumerate(sizes):
        save_pages(tmp_path / "images" / f"{number}.tif", [grey(*size)] * 2)
        save_pages(tmp_path / "masks" / f"{number}.tif", [classes(2, *size)] * 2)
    opened = open_mask_folder(str(tmp_path))
    assert [opened.train.size(2 * number) for number in range(3)] == sizes
    assert [opened.train.whole(2 * number)[0].shape[:2] for number in range(3)] == sizes
    assert (opened.spec.height, opened.spec.width) == (21, 30)
    recipe = Recipe(dataset="mask-folder", data_dir=str(tmp_path), model="unet_same", tile_size=8)
    assert open_data(recipe).train.fetch(np.arange(2))[0].shape == (2, 8, 8, 1)


def test_a_mask_with_a_thumbnail_is_refused_for_that(tmp_path: Path) -> None:
    write_pairs(tmp_path)
    (tmp_path / "masks" / "1.png").unlink()
    save_pages(tmp_path / "masks" / "1.tif", [classes(2), classes(2, 6, 5)])
    with pytest.raises(BadInputError, match=r"^The mask \S*masks/1\.tif has .*1 is 12x10, page 2 is 6x5 "):
        open_mask_folder(str(tmp_path))
    save_pages(tmp_path / "masks" / "1.tif", [classes(2)])
    assert len(open_mask_folder(str(tmp_path)).train) == 3


def test_pages_that_are_shown_turned_keep_their_size(tmp_path: Path) -> None:
    for folder in ("images", "masks"):
        (tmp_path / folder).mkdir()
        with tifffile.TiffWriter(tmp_path / folder / "a.tif") as tiff:
            for orientation in (6, 1):
                tag = (274, "H", 1, orientation, True)
                tiff.write(classes(2), metadata=None, contiguous=False, extratags=[tag])
    opened = open_mask_folder(str(tmp_path)).train
    assert [opened.whole(page)[0].shape[:2] for page in range(2)] == [(10, 12), (12, 10)]


@pytest.mark.parametrize("policy", ["error", "skip"])
def test_masks_need_as_many_pages_of_the_same_sizes(tmp_path: Path, policy: str) -> None:
    masks = tmp_path / "masks"
    save_pages(write_volume(tmp_path) / "masks" / "cells.tif", [classes(2)] * 5)
    message = (
        r"mask \S*masks/cells\.tif has 5 pages, but its image \S*images/cells\.tif has 4 pages; "
        r".*the same number of pages"
    )
    with pytest.raises(BadInputError, match=message):
        open_mask_folder(str(tmp_path), on_bad_sample=policy)
    (masks / "cells.tif").unlink()
    save(masks / "cells.png", classes(2))
    message = r"masks/cells\.png has 1 page, but its image \S*images/cells\.tif has 4 pages"
    with pytest.raises(BadInputError, match=message):
        open_mask_folder(str(tmp_path), on_bad_sample=policy)
    (masks / "cells.png").unlink()
    save_pages(masks / "cells.tif", [classes(2), classes(2), classes(2, 12, 11), classes(2)])
    message = r"cells\.tif page 3 is 12x11, but its image \S*cells\.tif page 3 is 12x10 .*the same size"
    with pytest.raises(BadInputError, match=message):
        open_mask_folder(str(tmp_path), on_bad_sample=policy)
    write_volume(tmp_path)
    assert len(open_mask_folder(str(tmp_path), on_bad_sample=policy).train) == 4


def test_a_damaged_page_is_one_bad_sample_and_a_cut_file_another(tmp_path: Path) -> None:
    write_pairs(write_volume(tmp_path), count=2)
    _cut(tmp_path / "images" / "cells.tif", 0.98)
    with pytest.raises(BadInputError, match=r"cells\.tif page 4 cannot be read: .*--on-bad-sample skip"):
        open_mask_folder(str(tmp_path))
    recipe = Recipe(
        dataset="mask-folder",
        data_dir=str(tmp_path),
        model="unet_same",
        on_bad_sample="skip",
        validation_fraction=0.0,
    )
    opened = open_data(recipe)
    assert (len(opened.train), [sample.index for sample in opened.bad_samples]) == (6, [5])
    assert opened.bad_samples[0].name.endswith("cells.tif page 4")
    checked = check_mask_folder(str(tmp_path))
    assert (checked.counts["train"], checked.image_sizes) == (6, {"12x10": 5})
    assert [Path(sample.name).name for sample in checked.bad_samples] == ["cells.tif page 4"]
    _cut(tmp_path / "masks" / "cells.tif", 0.5)
    with pytest.raises(BadInputError, match=r"masks/cells\.tif: the file is truncated or damaged between"):
        open_mask_folder(str(tmp_path))
    _cut(tmp_path / "images" / "cells.tif", 0.5)
    source = open_mask_folder(str(tmp_path), on_bad_sample="skip").train
    assert _names(source) == ["0.png", "1.png", "cells.tif"]
    with pytest.raises(BadSampleError, match=r"images/cells\.tif cannot be read"):
        source.whole(2)


def test_folds_held_out_samples_and_checks_count_pages(tmp_path: Path) -> None:
    write_volume(tmp_path, sizes=[(12, 10)] * 10)
    own: dict[str, Any] = {"dataset": "mask-folder", "data_dir": str(tmp_path), "model": "unet_same"}
    fold = open_data(Recipe(**own, folds=5, fold=1))
    held_out = open_data(Recipe(**own, validation_fraction=0.3))
    for opened, count in ((fold, 2), (held_out, 3)):
        assert opened.validation is not None
        assert (len(opened.train), len(opened.validation)) == (10 - count, count)
        names = {*_names(masked_of(opened.train)), *_names(masked_of(opened.validation))}
        assert len(names) == 10
    checked = check_mask_folder(str(tmp_path))
    assert (checked.counts["train"], checked.image_sizes) == (10, {"12x10": 10})


def test_the_file_of_a_page_is_known_by_its_name() -> None:
    assert file_of(named_page("a page 2/v.tif", 4)) == "a page 2/v.tif"
    assert file_of(named_page("a page 2/v.tif", None)) is None


def test_objects_have_pages_too(tmp_path: Path) -> None:
    save_pages(tmp_path / "a.tif", [grey(), grey()])
    shapes = np.zeros((2, 2, 12, 10), dtype=np.uint8)
    shapes[0, 0, 2:5, 2:5] = shapes[1, 0, 5:8, 2:5] = shapes[0, 1, 1, 1] = 255
    for number in range(2):
        save_pages(tmp_path / f"a_mask_{number}.tif", list(shapes[number]))
    source = open_mask_folder(str(tmp_path)).train
    assert isinstance(source, ObjectImages)
    first, second = source.objects(0), source.objects(1)
    assert first is not None
    assert second is not None
    assert (len(first), len(second)) == (2, 1)
    assert np.array_equal(source.whole(0)[1][..., 0], shapes[:, 0].max(axis=0) // 255)


def test_of_many_pages_an_even_selection_is_decoded_and_all_masks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_volume(tmp_path, sizes=[(12, 10)] * 7)
    masks = [classes(2, seed=page) for page in range(7)]
    masks[5][0, 0] = 9
    save_pages(tmp_path / "masks" / "cells.tif", masks)
    decoded: list[int] = []

    def counted(image: Image.Image, **settings: Any) -> Any:
        decoded.append(image.tell())
        return mask_pages.decode_whole(image, **settings)

    monkeypatch.setattr(mask_scan, "decode_whole", counted)
    monkeypatch.setattr(mask_scan, "_MOST_DECODED", 3)
    assert open_mask_folder(str(tmp_path)).spec.mask_values == ((0,), (1,), (9,))
    assert decoded == [0, 3, 6]
    message = r"masks/cells\.tif page 6 contains the value 9, .*--num-classes 10"
    with pytest.raises(BadInputError, match=message):
        open_mask_folder(str(tmp_path), num_classes=2)
    monkeypatch.setattr(mask_scan, "_MOST_PIXELS_OF_MASKS", 0)
    with pytest.raises(
        BadSampleError, match=r"cells\.tif page 6 .*cells\.tif page 6: it contains the value 9"
    ):
        open_mask_folder(str(tmp_path)).train.whole(5)


def test_frames_of_an_animation_are_no_pages(tmp_path: Path) -> None:
    frames = [Image.fromarray(classes(2, seed=seed) * np.uint8(255)) for seed in range(3)]
    frames[0].save(tmp_path / "a.gif", save_all=True, append_images=frames[1:])
    frames[0].save(tmp_path / "a.tif", save_all=True, append_images=frames[1:])
    counts = []
    for name in ("a.gif", "a.tif"):
        with Image.open(tmp_path / name) as image:
            counts.append(count_pages(image))
    assert counts == [1, 3]


def _first_pixels(volumes: OpenVolumes, path: str, order: list[int]) -> list[int]:
    return [int(np.asarray(volumes.image(path, page))[0, 0]) for page in order]


def test_volumes_stay_open_but_not_across_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [
        str(
            save_pages(tmp_path / f"{k}.tif", [np.full((9, 9), 10 * k + page, np.uint8) for page in range(6)])
        )
        for k in range(3)
    ]
    opened: list[Any] = []

    def noted(file: Any) -> Image.Image:
        opened.append(file)
        return Image.open(file)

    monkeypatch.setattr(mask_pages, "open_image", noted)
    volumes = OpenVolumes()
    order = [5, 0, 3, 3, 1]
    assert _first_pixels(volumes, paths[0], order) == order
    assert len(opened) == 1
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.SimpleQueue[tuple[list[int], int]] = context.SimpleQueue()
    process = context.Process(
        target=lambda: answers.put((_first_pixels(volumes, paths[0], order), len(opened)))
    )
    process.start()
    assert answers.get() == (order, 2)
    process.join()
    assert _first_pixels(volumes, paths[0], order) == order
    assert len(opened) == 1
    assert _first_pixels(pickle.loads(pickle.dumps(volumes)), paths[0], order) == order
    monkeypatch.setattr(mask_pages, "_MOST_OPEN", 1)
    for k in (1, 2, 1):
        assert _first_pixels(volumes, paths[k], [4]) == [10 * k + 4]
    assert [file.closed for file in opened[-3:]] == [True, True, False]
