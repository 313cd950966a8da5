"""--fit takes the largest micro-batch whose predicted memory is free, before anything is written."""

from pathlib import Path
from typing import Any

import pytest

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.devices.device import Device
from drivetrain.models.from_recipe import rebuild_model
from drivetrain.planner.fit import fit_request, fitting_recipe, needed_bytes
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe
from drivetrain.recipe.smaller_batch import smaller_recipes, with_micro_batch
from drivetrain.run.request import Request, prepare_request

SMALL: dict[str, Any] = {
    "dataset": "digits",
    "model": "cifar_resnet8",
    "image_size": 32,
    "micro_batch_size": 32,
    "device": "cpu",
    "fit": True,
}


def _request(**options: Any) -> Request:
    return prepare_request(resolve_recipe(overrides={**SMALL, **options}))


def _fitted(request: Request) -> Request:
    with Reporter(quiet=True) as reporter:
        return fit_request(request, reporter=reporter)


def _needed(request: Request, size: int, group: int) -> int:
    recipe = with_micro_batch(request.recipe, size=size, group=group)
    assert recipe is not None
    needed = needed_bytes(recipe, rebuild_model(recipe, request.data.spec), image_shape=(1, 32, 32))
    assert needed is not None
    return needed


@pytest.fixture
def in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("in_an_empty_folder")
@pytest.mark.parametrize(("size", "group"), [(32, 1), (16, 2), (8, 1)])
def test_the_largest_that_fits_keeps_batch_and_directory(
    size: int, group: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = _request(replicas=2, global_batch_size=64)
    free = _needed(request, size, group) * request.recipe.replicas
    monkeypatch.setattr(Device, "free_memory_bytes", property(lambda _: free))
    fitted = _fitted(request)
    assert (fitted.recipe.micro_batch_size, fitted.recipe.dbn_replica_group_size) == (size, group)
    assert fitted.plan.batch.global_batch == 64
    assert fitted.directory.path == request.directory.path
    assert not fitted.directory.path.exists()
    is_smaller = size < 32
    assert (fitted is request) != is_smaller
    assert (fitted.recipe.output_dir == str(request.directory.path)) == is_smaller
    assert (fitted.identity == request.identity) == (size * group == 32)


@pytest.mark.usefixtures("in_an_empty_folder")
def test_where_nothing_fits_the_error_says_what_takes_less(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Device, "free_memory_bytes", property(lambda _: 1_000_000))
    with pytest.raises(BadInputError, match=r"--fit finds nothing that fits: .* --recomputation, --stages 2"):
        _fitted(_request())


def test_the_first_that_fits_is_taken_and_no_further_one_is_asked_for() -> None:
    recipe, asked = Recipe(micro_batch_size=8), list[int]()

    def needed(each: Recipe) -> int:
        asked.append(each.micro_batch_size)
        return 10 * each.micro_batch_size

    others = smaller_recipes(recipe, normalises=False, may_change_set=True)
    fit = fitting_recipe(recipe, others, needed=needed, available_bytes=45)
    assert fit is not None
    assert (fit.recipe.micro_batch_size, fit.needed_bytes, fit.asked_bytes) == (4, 40, 80)
    assert asked == [8, 4]
    assert fitting_recipe(recipe, [], needed=lambda _: None, available_bytes=0) is None
