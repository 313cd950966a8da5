"""--fit takes the largest micro-batch whose predicted memory is free, before anything is written."""

from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.devices.device import Device
from drivetrain.planner.devices.target import find_target
from drivetrain.planner.estimate import estimate_recipe
from drivetrain.planner.fit import MemoryNeed, fit_request, fitting_request
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.smaller_batch import smaller_recipes, with_micro_batch
from drivetrain.run.request import Request, prepare_request, refit

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


def _fitted(request: Request, *, limit: int | None = None, model: nn.Module | None = None) -> Request:
    with Reporter(quiet=True) as reporter:
        return fit_request(request, model=model, memory_limit_bytes=limit, reporter=reporter)


class _Counting(nn.Module):
    """Counts its images in Python, which cannot be traced; its memory can be predicted."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 30 * 30, 10))

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.head(images)
        return outputs * len(range(len(images))) / len(images)


def _needed(request: Request, size: int, group: int, *, model: nn.Module | None = None) -> int:
    recipe = with_micro_batch(request.recipe, size=size, group=group)
    assert recipe is not None
    need = MemoryNeed.of(request, model=model, target=find_target(request.recipe))
    needed = need(refit(request, recipe))
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
    memory = _needed(request, size, group) * request.recipe.replicas
    monkeypatch.setattr(Device, "total_memory_bytes", property(lambda _: memory))
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
    monkeypatch.setattr(Device, "total_memory_bytes", property(lambda _: 1_000_000))
    with pytest.raises(BadInputError, match=r"--fit finds nothing that fits: .* --recomputation, --stages 2"):
        _fitted(_request())


@pytest.mark.usefixtures("in_an_empty_folder")
@pytest.mark.parametrize("options", [{}, {"ema": 0.9, "data_placement": "resident"}, {"stages": 2}])
def test_a_plan_and_fit_agree_on_what_fits(options: dict[str, Any]) -> None:
    request = _request(**options)
    peak = estimate_recipe(request.resolved, measure="off").peak_bytes
    assert peak is not None
    for limit in (peak, peak - 1):
        fits = estimate_recipe(request.resolved, measure="off", memory_limit_bytes=limit).fits
        assert (_fitted(request, limit=limit) is request) == fits
    assert _needed(request, 32, 1) == peak


@pytest.mark.usefixtures("in_an_empty_folder")
def test_a_model_that_cannot_be_traced_takes_a_smaller_batch() -> None:
    request, model = _request(), _Counting()
    limit = _needed(request, 8, 1, model=model)
    assert limit < _needed(request, 32, 1, model=model)
    fitted = _fitted(request, limit=limit, model=model).recipe
    assert (fitted.micro_batch_size, fitted.recomputation) == (8, False)
    with pytest.raises(BadInputError, match="cannot be split into stages"):
        _fitted(_request(recomputation=True), limit=limit, model=model)


@pytest.mark.usefixtures("in_an_empty_folder")
def test_the_first_that_fits_is_taken_and_no_further_one_is_asked_for() -> None:
    request, asked = _request(micro_batch_size=8), list[int]()

    def needed(each: Request) -> int:
        asked.append(each.recipe.micro_batch_size)
        return 10 * each.recipe.micro_batch_size

    smaller = smaller_recipes(request.recipe, normalises=False, may_change_set=True)
    others = [refit(request, recipe) for recipe in smaller]
    fit = fitting_request(request, others, needed=needed, available_bytes=45)
    assert fit is not None
    assert (fit.request.recipe.micro_batch_size, fit.needed_bytes, fit.asked_bytes) == (4, 40, 80)
    assert asked == [8, 4]
    assert fitting_request(request, [], needed=lambda _: None, available_bytes=0) is None
