"""What a person opens after a cross-validation."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from drivetrain.recipe.schema import Recipe
from drivetrain.run.crossval_directory import CrossvalDirectory
from drivetrain.run.crossval_pages import write_pages
from drivetrain.run.crossval_results import FoldResult, summarise

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
