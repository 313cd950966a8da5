"""Masks that number objects are told from masks of classes."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from drivetrain.cli.main import main
from drivetrain.core.errors import BadInputError
from drivetrain.data.commands.check_files import check_mask_folder
from drivetrain.data.masks import mask_advice as mask_numbers
from drivetrain.data.masks.mask_folder import open_mask_folder
from tests.data.mask_files import grey, save, save_pages, save_palette

Mask = NDArray[np.uint8]

SIZE = 40


def _write(folder: Path, masks: Sequence[Mask]) -> str:
    for number, mask in enumerate(masks):
        save(folder / "images" / f"{number:03}.png", grey(*mask.shape, seed=number))
        save(folder / "masks" / f"{number:03}.png", mask)
    return str(folder)


def _warnings(folder: str) -> list[str]:
    return [text for text in open_mask_folder(folder).warnings if "numbered objects" in text]


def _objects(count: int, *, seed: int, step: int = 10) -> Mask:
    """Squares in places of a grid, numbered in any order; a step of 5 lets them touch."""
    random = np.random.default_rng(seed)
    mask = np.zeros((SIZE, SIZE), dtype=np.uint8)
    for number, place in enumerate(random.permutation(16)[:count].tolist(), start=1):
        top, left = step * (place // 4) + 1, step * (place % 4) + 1
        mask[top : top + 5, left : left + 5] = number
    return mask


def _counted(counts: Sequence[int], *, step: int = 10) -> list[Mask]:
    return [_objects(count, seed=seed, step=step) for seed, count in enumerate(counts)]


EIGHT = (8, 5, 6, 7, 8, 3)


def _in_two_pieces(mask: Mask, *, numbers: Sequence[int]) -> Mask:
    """The same with a second piece of each of these numbers in the rows below."""
    below = np.zeros((SIZE // 2, SIZE), dtype=np.uint8)
    for number in set(numbers) & set(mask.flat):
        below[4:8, 4 * number : 4 * number + 2] = number
    return np.vstack([mask, below])


def _nested(depth: int) -> Mask:
    """A part within a part within a part, to this depth."""
    mask = np.zeros((SIZE, SIZE), dtype=np.uint8)
    for number in range(1, depth + 1):
        mask[6 * number : SIZE - number, 6 * number : SIZE - number] = number
    return mask


def _present(mask: Mask, numbers: Sequence[int] | NDArray[np.int64]) -> Mask:
    return np.where(np.isin(mask, numbers), mask, 0).astype(np.uint8)


@pytest.mark.parametrize(
    "masks",
    [
        pytest.param(_counted(EIGHT), id="eight"),
        pytest.param(_counted(EIGHT, step=5), id="touching"),
        pytest.param(_counted((12, 9)), id="two masks of many"),
        pytest.param(_counted((1, 2, 3) * 4), id="few"),
        pytest.param([*_counted(EIGHT), np.zeros((SIZE, SIZE), np.uint8)], id="an empty one"),
        pytest.param([np.where(mask == 0, 255, mask) for mask in _counted(EIGHT)], id="outlines of 255"),
        pytest.param(
            [_in_two_pieces(mask, numbers=[4]) for mask in _counted((8,) * 3 + (16,) * 3)], id="cut"
        ),
        pytest.param(
            [*_counted((9, 9, 10, 11, 12, 13, 14, 15, 16)), _present(_objects(9, seed=1), [1, 3])],
            id="a lost number",
        ),
    ],
)
def test_numbered_objects_are_warned_of(tmp_path: Path, masks: list[Mask]) -> None:
    (said,) = _warnings(_write(tmp_path, masks))
    highest = max(int(mask[mask < 255].max()) for mask in masks)
    assert f"1 to {highest}, each in one piece" in said
    assert "each value is read as a class" in said
    assert f"which gives {len(np.unique(np.stack(masks)))} classes;" in said
    assert "masks/7/1.png" in said
    assert "all objects one class, or masks of 0 and 255" in said
    assert said.count(". ") == 0


@pytest.mark.parametrize(
    "masks",
    [
        pytest.param(_counted((3,) * 12), id="three organs, always"),
        pytest.param(_counted((3,) * 8 + (2,) * 3 + (1,)), id="three organs, nearly always"),
        pytest.param(_counted((9,) * 10 + (8, 7, 6)), id="nine organs, nearly always"),
        pytest.param(_counted((1,) * 7 + (2, 2, 3)), id="rare classes"),
        pytest.param(_counted((2, 3) * 5), id="one that comes and goes"),
        pytest.param(_counted((1, 2) * 5), id="two numbers"),
        pytest.param([_nested(depth) for depth in (1, 2, 3, 4) * 3], id="parts within parts"),
        pytest.param(
            [
                _present(_objects(9, seed=seed), np.random.default_rng(seed).permutation(9)[:6] + 1)
                for seed in range(12)
            ],
            id="classes that come and go",
        ),
        pytest.param([_in_two_pieces(mask, numbers=range(9)) for mask in _counted(EIGHT)], id="in pieces"),
        pytest.param(
            [
                np.random.default_rng(seed).integers(0, 3 + seed, (SIZE, SIZE)).astype(np.uint8)
                for seed in range(8)
            ],
            id="scattered",
        ),
        pytest.param(_counted((12,)), id="one mask"),
    ],
)
def test_classes_are_not(tmp_path: Path, masks: list[Mask]) -> None:
    assert _warnings(_write(tmp_path, masks)) == []


def test_what_somebody_called_classes_is_taken_as_such(tmp_path: Path) -> None:
    folder = _write(tmp_path, _counted(EIGHT))
    assert len(_warnings(folder)) == 1
    assert open_mask_folder(folder, num_classes=9).warnings == []
    (tmp_path / "classes.txt").write_text("\n".join("abcdefghi"))
    assert open_mask_folder(folder).warnings == []


def test_palettes_pages_and_splits_count_too(tmp_path: Path) -> None:
    masks = _counted(EIGHT)
    shown = [(20 * number, 255 - 20 * number, 0) for number in range(9)]
    for split, part in (("train", masks[:3]), ("val", masks[3:])):
        for number, mask in enumerate(part):
            save(tmp_path / "palette" / split / "images" / f"{number}.png", grey(SIZE, SIZE))
            save_palette(tmp_path / "palette" / split / "masks" / f"{number}.png", mask, shown)
    save_pages(tmp_path / "pages" / "images" / "a.tif", [grey(SIZE, SIZE)] * 6)
    save_pages(tmp_path / "pages" / "masks" / "a.tif", [mask.astype(np.uint16) for mask in masks])
    for name in ("palette", "pages"):
        assert len(_warnings(str(tmp_path / name))) == 1


def test_few_masks_are_read_again_and_none_of_classes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []
    own = mask_numbers._look_at_pieces

    def counted(values: NDArray[np.int32], seen: mask_numbers._Seen) -> None:
        read.append(int(values.max()))
        own(values, seen)

    monkeypatch.setattr(mask_numbers, "_look_at_pieces", counted)
    objects = _write(tmp_path / "objects", _counted(tuple(range(3, 15)) * 3))
    assert len(_warnings(objects)) == 1
    assert len(read) == 12
    monkeypatch.setattr(mask_numbers, "_MOST_PIXELS_READ", 2 * SIZE * SIZE)
    read.clear()
    assert len(_warnings(objects)) == 1
    assert len(read) == 2
    read.clear()
    assert _warnings(_write(tmp_path / "classes", _counted((3,) * 5))) == []
    assert read == []


def test_more_numbers_than_can_be_classes_are_refused_as_before(tmp_path: Path) -> None:
    masks = [np.arange(step * 10, dtype=np.uint8).reshape(10, step) for step in (8, 9, 10)]
    folder = _write(tmp_path, masks)
    with pytest.raises(BadInputError, match=r"100 different values, .*numbered objects rather than classes"):
        open_mask_folder(folder)


@pytest.mark.parametrize("command", ["train", "crossval"])
def test_it_is_said_once_where_a_training_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    folder = _write(tmp_path / "own", _counted(EIGHT))
    options = ["--dataset", "mask-folder", "--data-dir", folder, "--micro-batch-size", "2", "--device", "cpu"]
    options += ["--model-width", "2", "--model-params", "{depth: 1}", "--max-updates", "1"]
    options += ["--folds", "2"] if command == "crossval" else []
    assert main([command, *options, "--num-threads", "1", "--output-dir", str(tmp_path / "out")]) == 0
    first_training = capsys.readouterr().out.partition("fold 1 (2 of 2)")[0]
    assert first_training.count("warning: The masks look like numbered objects") == 1


def test_a_check_says_it_and_not_that_all_is_well(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = _write(tmp_path, _counted(EIGHT))
    assert len(check_mask_folder(folder).warnings) == 1
    assert main(["data", "check", "mask-folder", "--data-dir", folder]) == 0
    shown = capsys.readouterr()
    assert "drivetrain data: warning: The masks look like numbered objects" in shown.err
    assert "All files can be read and all counts are as expected." not in shown.out
