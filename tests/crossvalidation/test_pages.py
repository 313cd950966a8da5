"""What a person opens after a cross-validation."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from drivetrain.crossvalidation.pages import class_lines, result_line, write_pages
from drivetrain.crossvalidation.results import FoldResult, summarise
from drivetrain.recipe.schema import Recipe
from drivetrain.store.crossval_directory import CrossvalDirectory

PANEL_WIDTH, PANEL_HEIGHT = 660, 480


def _curves(path: Path, metrics: int) -> NDArray[np.uint8]:
    names = ["loss", *(f"metric_{number}" for number in range(1, metrics))]
    folds = [
        FoldResult(
            fold=fold,
            updates=(5, 10),
            evaluations=tuple(dict.fromkeys(names, fold + point) for point in (0.25, 0.5)),
        )
        for fold in range(2)
    ]
    directory = CrossvalDirectory(path)
    write_pages(directory, recipe=Recipe(), folds=folds, statistics=summarise(folds))
    return np.asarray(Image.open(BytesIO(directory.curves.read_bytes())).convert("L"))


@pytest.mark.parametrize(
    ("metrics", "rows", "columns"), [(1, 1, 1), (2, 1, 2), (3, 1, 3), (4, 2, 3), (7, 3, 3)]
)
def test_curves_lie_in_rows_of_three(tmp_path: Path, metrics: int, rows: int, columns: int) -> None:
    picture = _curves(tmp_path, metrics)
    assert picture.shape == (rows * PANEL_HEIGHT, columns * PANEL_WIDTH)
    panels = picture.reshape(rows, PANEL_HEIGHT, columns, PANEL_WIDTH).transpose(0, 2, 1, 3)
    is_drawn = [bool((panel[100:380, 300:500] < 200).any()) for panel in panels.reshape(-1, 480, 660)]
    assert is_drawn == [True] * metrics + [False] * (rows * columns - metrics)


def _segmentations() -> list[FoldResult]:
    """Two folds of two evaluations: the IoU of cells is best at the first, the mean Dice at the other."""
    points = [{"dice": 0.25, "iou_cell": 0.75, "iou": 0.5}, {"dice": 0.75, "iou_cell": 0.25, "iou": 0.5}]
    rest = {"loss": 0.5, "soft_dice_cell": 0.125, "soft_dice_back": 0.875, "iou_back": 0.5}
    evaluations = tuple({**rest, **point} for point in points)
    return [FoldResult(fold=fold, updates=(5, 10), evaluations=evaluations) for fold in range(2)]


def test_classes_have_a_table_of_their_own_and_means_are_called_so(tmp_path: Path) -> None:
    folds, directory = _segmentations(), CrossvalDirectory(tmp_path)
    statistics = summarise(folds)
    write_pages(directory, recipe=Recipe(), folds=folds, statistics=statistics)
    page = directory.readme.read_text()
    assert "| last soft Dice |" in page
    assert "| last soft dice cell |" not in page
    assert "are means over classes, background included" in page
    assert "| cell | 0.1250 ± 0.0000 | 0.2500 ± 0.0000 |" in page
    assert page.index("| cell |") < page.index("| back |") < page.index("| mean over classes |")
    assert "chosen by soft Dice (mean over classes) (higher is better" in page
    assert class_lines(statistics)[1].split() == ["class", "soft", "Dice", "IoU"]
    assert "validation soft Dice (mean over classes) over 2 folds: 0.7500" in result_line(statistics, folds=2)
    assert "last_soft_dice_cell" in directory.table.read_text()


def test_a_class_that_chooses_the_best_is_in_the_table_of_folds(tmp_path: Path) -> None:
    folds, directory = _segmentations(), CrossvalDirectory(tmp_path)
    statistics = summarise(folds, best_by="iou_cell")
    write_pages(directory, recipe=Recipe(), folds=folds, statistics=statistics)
    assert [fold.best_index(statistics.metric) for fold in folds] == [0, 0]
    assert statistics.best["dice"].mean == 0.25
    assert "| last IoU of cell |" in directory.readme.read_text()
    assert summarise(folds, best_by="iou_other").metric == "dice"
