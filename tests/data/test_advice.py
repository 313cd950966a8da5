"""What is said of labels: where they start, and which classes have no validation sample."""

import re
from pathlib import Path

import numpy as np
import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.advice import refuse_late_labels
from drivetrain.data.labels import labels_of
from drivetrain.data.source import DataSplits
from drivetrain.data.splits import open_data, split_user_data
from drivetrain.recipe.schema import Recipe
from tests.data.folders import write_images


def _own(labels: list[int]) -> DataSplits:
    images = np.zeros((len(labels), 4, 4, 1), dtype=np.uint8)
    return split_user_data(Recipe(), train=(images, np.array(labels)))


def test_labels_that_start_above_0_are_refused_as_they_are() -> None:
    with pytest.raises(BadInputError, match="go from 1 to 3, but labels start at 0; subtract 1 from each"):
        refuse_late_labels(_own([1, 2, 3, 1]), outputs=3)
    refuse_late_labels(_own([0, 1, 3]), outputs=3)


@pytest.mark.parametrize(("files", "option"), [(5, "--folds"), (9, "--validation-fraction"), (1, "")])
def test_classes_without_a_validation_sample_are_named(tmp_path: Path, files: int, option: str) -> None:
    write_images(tmp_path, {f"class{number}": files for number in range(10)})
    recipe = Recipe(dataset="image-folder", data_dir=str(tmp_path), validation_fraction=0.1)
    (warning,) = open_data(recipe).warnings
    assert re.match(r"--validation-fraction 0\.1 holds out no sample of class class\d[, ]", warning)
    assert "val folder" in warning
    words = warning.partition("; use ")[2].partition("validation images")[0].removesuffix(" or ").split()
    assert words[:1] == option.split()
    if words:
        values = {
            name.removeprefix("--").replace("-", "_"): words[words.index(name) + 1] for name in words[::2]
        }
        _require_all_classes(
            open_data(Recipe.model_validate({**recipe.model_dump(), "validation_fraction": None, **values}))
        )


def _require_all_classes(data: DataSplits) -> None:
    assert data.warnings == []
    assert data.validation is not None
    assert set(labels_of(data.validation)) == set(labels_of(data.train)) == set(range(10))
