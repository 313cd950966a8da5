"""Data sets made by a user's own function."""

from pathlib import Path

import numpy as np
import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.splits import open_data
from drivetrain.recipe.schema import Recipe

MODULE = """
import numpy as np
from drivetrain.data.sources.arrays import splits_of

def images(count, value=0):
    return np.full((count, 8, 8, 1), value, dtype=np.uint8), np.arange(count) % 3

def one(seed):
    return images(12, value=seed)

def pair(*, data_dir=None, **others):
    assert others["seed"] == 5
    return images(12), images(int(data_dir or 4))

def splits():
    return splits_of(images(12), images(6))

def nothing():
    return None
"""


@pytest.fixture
def module_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_data_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"{name}_needy.py").write_text("import a_module_nobody_has\n")
    monkeypatch.chdir(tmp_path)
    return name


def test_one_data_set_gets_the_seed_it_asks_for(module_name: str) -> None:
    data = open_data(Recipe(dataset=f"{module_name}:one", seed=5))
    assert (len(data.train), data.validation, data.spec.num_classes) == (12, None, 3)
    assert (data.train.fetch(np.arange(12))[0] == 5).all()
    held_out = open_data(Recipe(dataset=f"{module_name}:one", validation_fraction=0.25))
    assert held_out.validation is not None
    assert (len(held_out.train), len(held_out.validation)) == (9, 3)


def test_a_pair_gets_the_folder(module_name: str) -> None:
    data = open_data(Recipe(dataset=f"{module_name}:pair", seed=5, data_dir="7"))
    assert data.validation is not None
    assert (len(data.train), len(data.validation), data.warnings) == (12, 7, [])


def test_splits_are_taken_as_they_are_and_a_folder_without_effect_is_said(module_name: str) -> None:
    data = open_data(Recipe(dataset=f"{module_name}:splits", data_dir="x"))
    assert data.validation is not None
    assert (len(data.train), len(data.validation)) == (12, 6)
    (warning,) = data.warnings
    assert "--data-dir x has no effect" in warning


def test_what_cannot_be_opened_is_said(module_name: str) -> None:
    for name, said in (
        (f"{module_name}:won", rf"has no won\. Did you mean {module_name}:one\?"),
        (f"{module_name}:nothing", "NoneType is no data set"),
        ("nowhere.at_all:one", "--dataset nowhere.at_all:one cannot be imported: .*nowhere"),
        (f"{module_name}_needy:one", "cannot be imported: .*a_module_nobody_has"),
    ):
        with pytest.raises(BadInputError, match=said):
            open_data(Recipe(dataset=name))
    with pytest.raises(BadInputError, match="--limit-train-samples"):
        open_data(Recipe(dataset=f"{module_name}:one", dataset_size=3))
