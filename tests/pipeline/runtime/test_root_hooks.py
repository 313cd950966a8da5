"""The hooks of a model that is never called itself."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.pipeline.runtime.root_hooks import RootHooks


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(()))
        self.register_buffer("mean", torch.tensor(0.5))

    def forward(self, images: Tensor) -> Tensor:
        return images * 3


def test_before_and_after_are_a_call_of_the_model() -> None:
    model = _Model()
    order: list[str] = []
    model.register_forward_pre_hook(lambda one, inputs: order.append("before") or inputs[0] - one.mean)  # type: ignore[func-returns-value]
    model.register_forward_hook(lambda _, inputs, output: order.append("after") or output + inputs[0])  # type: ignore[func-returns-value]
    images = torch.rand(2, 3)
    expected = model(images)
    hooks = RootHooks(model)
    assert hooks.follow
    prepared = hooks.before(images)
    assert order == ["before", "after", "before"]
    assert torch.equal(hooks.after(prepared, prepared * 3), expected)
    assert order == ["before", "after"] * 2
    assert "forward" not in vars(model)
    assert torch.equal(model(images), expected)


def test_a_hook_may_remove_itself() -> None:
    model = _Model()
    handles: list[Any] = []
    handles.append(model.register_forward_hook(lambda _, __, output: handles[0].remove() or output + 1))
    hooks = RootHooks(model)
    images = torch.ones(2)
    assert [hooks.after(images, images).tolist() for _ in range(2)] == [[2.0, 2.0], [1.0, 1.0]]
    assert not hooks.follow


def test_without_hooks_nothing_is_called() -> None:
    hooks = RootHooks(_Model())
    images = torch.ones(2)
    assert hooks.before(images) is images
    assert hooks.after(images, images) is images


@pytest.mark.parametrize(
    ("hook", "said"),
    [
        (lambda _, inputs: (inputs[0], 2), "gives its forward more than the images"),
        (lambda _, inputs: None if inputs is None else ([inputs[0]],), "more than the images"),
        (lambda one, inputs: inputs[0] * one.weight, "uses trained weights, which no stage would train"),
    ],
)
def test_a_pre_hook_that_stages_cannot_follow_is_refused(hook: Callable[..., Any], said: str) -> None:
    model = _Model()
    model.register_forward_pre_hook(hook)
    with pytest.raises(BadInputError, match=said):
        RootHooks(model).before(torch.ones(2))
    assert "forward" not in vars(model)


def test_a_hook_gives_one_tensor() -> None:
    model = _Model()
    model.register_forward_hook(lambda _, __, output: {"logits": output})
    with pytest.raises(BadInputError, match="returns a dict; it must return one tensor"):
        RootHooks(model).after(torch.ones(2), torch.ones(2))


def test_a_weight_of_another_rank_is_not_read() -> None:
    model = _Model()
    model.register_forward_hook(lambda one, _, output: output * one.weight)
    assert RootHooks(model, is_spread=True).after(torch.ones(2), torch.ones(2)).tolist() == [1.0, 1.0]
    model.weight.untyped_storage().resize_(0)
    with pytest.raises(BadInputError, match="reads a weight of a stage on another rank"):
        RootHooks(model, is_spread=True).after(torch.ones(2), torch.ones(2))
