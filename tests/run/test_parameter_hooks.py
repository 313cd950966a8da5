"""Hooks of parameters work in every layout of a training."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import drivetrain
from drivetrain.core.errors import BadInputError
from drivetrain.ranks.replica_group import ALONE
from drivetrain.recipe.load import resolve_recipe
from drivetrain.verify.cuts import Layout
from drivetrain.verify.measure import measure_rank
from drivetrain.verify.subject import prepare_subject
from tests.program.harness import worst_error
from tests.run.small_runs import weights

pytestmark = pytest.mark.usefixtures("no_pictures")


def _nothing(gradient: Tensor) -> Tensor:
    return gradient * 0


def _none(parameter: Tensor) -> None:
    parameter.grad = None


def _doubled(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad = parameter.grad * 2


def _model() -> nn.Sequential:
    """Hooks keep the first weight and the first bias where they are, and double another gradient."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 16, 8), nn.Linear(8, 3))
    model.get_parameter("0.weight").register_hook(_nothing)  # type: ignore[no-untyped-call]
    model.get_parameter("0.bias").register_post_accumulate_grad_hook(_none)  # type: ignore[no-untyped-call]
    model.get_parameter("3.weight").register_post_accumulate_grad_hook(_doubled)  # type: ignore[no-untyped-call]
    return model


def _data() -> tuple[Any, Any]:
    images = np.random.default_rng(0).integers(0, 255, (16, 6, 6, 1), dtype=np.uint8)
    return images, np.arange(16) % 3


def _train(path: Path, model: nn.Module, *, micro: int = 8, **options: Any) -> dict[str, Any]:
    drivetrain.train(
        model=model,
        data=_data(),
        micro_batch_size=micro,
        global_batch_size=16,
        max_updates=1,
        learning_rate=0.1,
        validation=False,
        output_dir=str(path),
        num_threads=1,
        device="cpu",
        compile="off",
        quiet=True,
        **options,
    )
    return weights(path)


# A hook after accumulation sees a sum that depends on the micro-batches, so each rank has one of its own.
@pytest.mark.parametrize(
    "layout",
    [{"micro": 16, "recomputation": True}, {"replicas": 2}, {"micro": 16, "stages": 2}],
    ids=["recomputation", "replicas", "stages"],
)
def test_hooks_of_parameters_work_in_every_layout(tmp_path: Path, layout: dict[str, Any]) -> None:
    expected = _train(tmp_path / "alone", _model(), micro=16)
    found = _train(tmp_path / "cut", _model(), **layout)
    assert worst_error(expected, found) <= 1e-5
    before = {name: value.numpy() for name, value in _model().state_dict().items()}
    for name in ("0.weight", "0.bias"):
        assert np.array_equal(found[name], before[name])
    assert not np.array_equal(found["4.weight"], before["4.weight"])
    free = _model()
    free.get_parameter("3.weight")._post_accumulate_grad_hooks.clear()
    assert worst_error(_train(tmp_path / "free", free, micro=16), found) > 1e-3


def test_a_hook_that_cannot_be_sent_is_refused_before_ranks_start(tmp_path: Path) -> None:
    model = _model()
    model.get_parameter("4.weight").register_hook(lambda gradient: gradient)  # type: ignore[no-untyped-call]
    with pytest.raises(BadInputError, match=r"^The model cannot be sent to other processes \(.*lambda"):
        _train(tmp_path / "run", model, replicas=2)
    assert not (tmp_path / "run").exists()


def test_verify_measures_a_model_with_its_hooks() -> None:
    resolved = resolve_recipe(overrides={"dataset": "digits", "image_size": 6})
    model = nn.Sequential(nn.Flatten(), nn.Linear(36, 10))
    model.get_parameter("1.weight").register_hook(_nothing)  # type: ignore[no-untyped-call]
    subject = prepare_subject(resolved, updates=1, make_model=lambda _: model)
    measured = measure_rank(ALONE, subject, Layout(micro=8), "float32").measurement
    assert measured is not None
    gradients = measured.steps[0].gradients
    assert not gradients["1.weight"].any()
    assert gradients["1.bias"].any()
