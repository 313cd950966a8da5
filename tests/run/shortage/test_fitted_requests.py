"""What a run keeps of a smaller micro-batch, and what the next command makes of it."""

from pathlib import Path
from typing import Any

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.core.files import write_json
from drivetrain.recipe.load import recipe_to_yaml, resolve_recipe
from drivetrain.recipe.smaller_batch import fitted_values, smaller_recipes
from drivetrain.run.request import Request, first_possible, fit_to_keep, prepare_request

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "model": "cifar_resnet8",
    "device": "cpu",
    "micro_batch_size": 8,
}
HAS_BATCH_NORM = {"model": {"buffers": 10}}


def _request(path: Path, **options: Any) -> Request:
    return prepare_request(resolve_recipe(overrides={**SMALL, "output_dir": str(path), **options}))


def _smaller(request: Request) -> Request:
    recipes = smaller_recipes(request.recipe, normalises=True, may_change_set=True)
    found = first_possible(request, recipes)
    assert found is not None
    return found


def _run(path: Path) -> Request:
    """A run that was asked for 8 and took 4; stopped before it could write its identity anew."""
    asked = _request(path)
    path.mkdir()
    write_json(asked.directory.identity, asked.identity)
    write_json(asked.directory.plan, {**HAS_BATCH_NORM, **fit_to_keep(_smaller(asked))})
    asked.directory.recipe.write_text(recipe_to_yaml(asked.recipe))
    asked.directory.metrics.write_text('{"event": "out_of_memory", "update": 0}\n')
    return asked


def test_the_same_command_takes_the_smaller_micro_batch_and_remembers_what_was_asked(tmp_path: Path) -> None:
    asked = _run(tmp_path / "run")
    again = _request(tmp_path / "run")
    assert again.recipe.micro_batch_size == again.plan.batch.micro == 4
    assert again.plan.batch.global_batch == asked.plan.batch.global_batch == 8
    assert again.resolved.fitted_from == fitted_values(asked.recipe)
    assert fit_to_keep(again) == fit_to_keep(_smaller(asked))


def test_the_stored_recipe_keeps_it_too(tmp_path: Path) -> None:
    asked = _run(tmp_path / "run")
    stored = _request(tmp_path / "run", micro_batch_size=4, gradient_accumulation_count=2)
    assert fit_to_keep(stored) == fit_to_keep(_smaller(asked))


def test_another_micro_batch_is_refused_as_ever(tmp_path: Path) -> None:
    _run(tmp_path / "run")
    with pytest.raises(BadInputError, match="batch norm would normalise over 2 samples"):
        _request(tmp_path / "run", micro_batch_size=2, gradient_accumulation_count=4)


def test_only_with_fit_a_still_smaller_one_may_continue(tmp_path: Path) -> None:
    _run(tmp_path / "run")
    _smaller(_request(tmp_path / "run", fit=True)).check_directory()
    with pytest.raises(BadInputError, match="batch norm would normalise over 2 samples"):
        _smaller(_request(tmp_path / "run")).check_directory()


def test_a_new_run_in_the_directory_takes_what_was_asked(tmp_path: Path) -> None:
    _run(tmp_path / "run")
    assert _request(tmp_path / "run", overwrite=True).recipe.micro_batch_size == 8
