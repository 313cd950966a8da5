"""Files are read side by side, but only so many are begun before the first of them is done."""

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from drivetrain.data.commands import write_pack as pack_write
from drivetrain.data.commands.check_files import check_mask_folder
from drivetrain.data.commands.write_pack import PackRequest, write_pack
from drivetrain.data.feeds import resident_data
from drivetrain.data.feeds.resident import ResidentFeed
from drivetrain.data.files import side_by_side
from drivetrain.data.files.side_by_side import mapped
from drivetrain.data.masks import scan as mask_scan
from drivetrain.data.masks.mask_folder import open_mask_folder
from drivetrain.data.preprocess import Preprocess
from drivetrain.data.sources import stored_images as image_size
from drivetrain.data.splits import open_data
from drivetrain.inference.predict.inputs import InputNotes
from drivetrain.inference.predict.mask_inputs import check_inputs
from drivetrain.recipe.schema import Recipe
from tests.data.folders import write_images
from tests.data.helpers import CPU, make_order
from tests.data.mask_files import write_pairs

FILES, AHEAD = 24, 4


def test_results_keep_the_order_of_endless_items() -> None:
    with ThreadPoolExecutor(3) as threads:
        results = mapped(threads, lambda number: number * number, count(), most_ahead=5)
        assert [next(results) for _ in range(100)] == [number * number for number in range(100)]
        results.close()


def test_whoever_stops_asking_ends_the_work() -> None:
    done: list[int] = []
    with ThreadPoolExecutor(1) as threads:
        results = mapped(threads, done.append, range(1000), most_ahead=10)
        next(results)
        results.close()
    assert len(done) <= 10


def test_an_error_reaches_whoever_asks() -> None:
    with ThreadPoolExecutor(2) as threads, pytest.raises(ZeroDivisionError):
        list(mapped(threads, lambda number: 1 // number, (2, 1, 0, 1), most_ahead=2))


@pytest.fixture
def waiting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many results were begun and not asked for yet, at every beginning."""
    counts = [0]
    submit, result = ThreadPoolExecutor.submit, Future.result
    open_futures: set[int] = set()

    def counting_submit(self: ThreadPoolExecutor, *args: Any, **kwargs: Any) -> Any:
        future = submit(self, *args, **kwargs)
        open_futures.add(id(future))
        counts.append(len(open_futures))
        return future

    def counting_result(self: Any, timeout: float | None = None) -> Any:
        open_futures.discard(id(self))
        return result(self, timeout)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", counting_submit)
    monkeypatch.setattr(Future, "result", counting_result)
    monkeypatch.setattr(side_by_side, "_MOST_AHEAD", AHEAD)
    monkeypatch.setattr(image_size, "_HEADERS_AT_A_TIME", AHEAD)
    monkeypatch.setattr(pack_write, "_SAMPLES_AT_A_TIME", AHEAD)
    monkeypatch.setattr(resident_data, "_FILES_AT_A_TIME", 1)
    monkeypatch.setattr(mask_scan, "_MOST_DECODED", 2)
    return counts


def _photographs(folder: Path) -> Path:
    return write_images(folder / "photos", {"cat": FILES // 2, "dog": FILES // 2})


def _open_photographs(folder: Path) -> None:
    open_data(Recipe(dataset="image-folder", data_dir=str(_photographs(folder)), on_bad_sample="skip"))


def _hold_photographs(folder: Path) -> None:
    splits = open_data(Recipe(dataset="image-folder", data_dir=str(_photographs(folder))))
    order = make_order(samples=len(splits.train))
    ResidentFeed(
        splits.train, order=order, preprocess=Preprocess(splits.spec), micro_batch_size=4, device=CPU
    )


def _pack(folder: Path) -> None:
    write_pack(_photographs(folder), folder / "packed", request=PackRequest())


def _scan_masks(folder: Path) -> None:
    open_mask_folder(str(write_pairs(folder / "cells", count=FILES)))


def _check_masks(folder: Path) -> None:
    check_mask_folder(str(write_pairs(folder / "cells", count=FILES)))


def _check_inputs(folder: Path) -> None:
    cells = write_pairs(folder / "cells", count=FILES)
    spec = open_mask_folder(str(cells)).spec
    check_inputs(sorted((cells / "images").iterdir()), spec, notes=InputNotes())


@pytest.mark.parametrize(
    "read", [_open_photographs, _hold_photographs, _pack, _scan_masks, _check_masks, _check_inputs]
)
def test_only_a_few_files_wait(tmp_path: Path, waiting: list[int], read: Callable[[Path], None]) -> None:
    read(tmp_path)
    assert max(waiting) == AHEAD
