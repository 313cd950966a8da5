"""First gradients that are written: the same gradient as one added to zeros, in fewer operations."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import drivetrain
from drivetrain.optim.flat_parameters import FlatParameters
from drivetrain.passes.whole_model import PlainPasses, written_at_once
from tests.program.capture_cases import CASES
from tests.run.small_runs import weights

pytestmark = pytest.mark.usefixtures("no_pictures")


class _Half(nn.Module):
    """Uses one of its two layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.used = nn.Conv2d(3, 5, 3)
        self.unused = nn.Linear(4, 2)

    def forward(self, images: Tensor) -> Tensor:
        outputs: Tensor = self.used(images)
        return outputs.square().mean()


def _expected(images: Tensor) -> Tensor:
    model = _Half()
    parameters = FlatParameters(model)
    model(images).backward()
    return parameters.gradients


def test_a_written_gradient_is_that_added_to_zeros() -> None:
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    model = _Half()
    parameters = FlatParameters(model)
    parameters.gradients.fill_(7.0)
    _clear_padding(parameters)
    with written_at_once(parameters):
        model(images).backward()
    assert torch.equal(parameters.gradients, _expected(images))
    assert model.unused.weight.grad is not None
    assert not model.unused.weight.grad.any()


def _clear_padding(parameters: FlatParameters) -> None:
    kept = [place.clone() for place in parameters.gradient_places]
    parameters.gradients.zero_()
    for place, values in zip(parameters.gradient_places, kept, strict=True):
        place.copy_(values)


def test_later_passes_add_to_the_first() -> None:
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    model = _Half()
    parameters = FlatParameters(model)
    with written_at_once(parameters):
        model(images).backward()
    model(images).backward()
    assert torch.equal(parameters.gradients, 2 * _expected(images))


def test_sparse_gradients_are_written_too() -> None:
    model = nn.Embedding(5, 3, sparse=True)
    parameters = FlatParameters(model)
    with written_at_once(parameters):
        model(torch.tensor([1, 1, 4])).sum().backward()
    assert parameters.gradient_places[0].tolist() == [[0.0] * 3, [2.0] * 3, [0.0] * 3, [0.0] * 3, [1.0] * 3]


def test_a_failing_pass_leaves_gradients_where_they_belong() -> None:
    model = _Half()
    parameters = FlatParameters(model)
    with pytest.raises(RuntimeError, match="of the pass"), written_at_once(parameters):
        raise RuntimeError("of the pass")
    assert model.used.weight.grad is not None
    assert model.used.weight.grad.data_ptr() == parameters.gradient_places[0].data_ptr()


def _train(directory: Path, **options: Any) -> dict[str, np.ndarray[Any, Any]]:
    drivetrain.train(
        **{"max_updates": 4, "device": "cpu", "validation": False, **options},
        output_dir=str(directory),
        quiet=True,
    )
    return weights(directory)


@pytest.mark.parametrize("case", ["plain", "padded and averaged", "16 bits", "bent masks"])
def test_trainings_end_alike(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str) -> None:
    expected = _train(tmp_path / "added", **CASES[case])
    original = PlainPasses.__init__
    written: list[bool] = []

    def written_first(passes: PlainPasses, **options: Any) -> None:
        original(passes, **{**options, "writes_first": True})
        written.append(passes.writes_first)

    monkeypatch.setattr(PlainPasses, "__init__", written_first)
    found = _train(tmp_path / "written", **CASES[case])
    assert written == [True]
    assert found.keys() == expected.keys()
    for name, value in expected.items():
        assert np.array_equal(found[name], value), name


def _doubled(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad = parameter.grad * 2


def test_a_written_gradient_is_what_hooks_leave() -> None:
    images = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    model = _Half()
    model.used.bias.register_hook(lambda gradient: gradient * 3)  # type: ignore[union-attr]
    model.used.weight.register_post_accumulate_grad_hook(_doubled)  # type: ignore[no-untyped-call]
    parameters = FlatParameters(model)
    parameters.gradients.fill_(7.0)
    with written_at_once(parameters):
        model(images).backward()
    found = dict(parameters.named_views(parameters.gradients))
    expected = dict(parameters.named_views(_expected(images)))
    assert torch.equal(found["used.weight"], expected["used.weight"] * 2)
    assert torch.equal(found["used.bias"], expected["used.bias"] * 3)
