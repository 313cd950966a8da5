"""Functions that draw per sample compute what torch's compute, but for the numbers drawn."""

from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.functions import draws_at, is_drawing_function, per_sample
from drivetrain.layers.draws.site import Site

# So small that it is rounded to a rate of 0: then nothing is dropped, but the way is that of a dropout.
NEXT_TO_NOTHING = 1e-6


def _site(samples: int) -> Site:
    context = UpdateContext(torch.device("cpu"))
    context.begin_forward(torch.arange(samples))
    return Site(5, context)


def _normal(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": torch.ones(5, 5, dtype=torch.bool).tril()},
        {"attn_mask": torch.linspace(-1, 1, 25, dtype=torch.float64).view(5, 5)},
    ],
)
def test_attention_is_torchs(options: dict[str, Any]) -> None:
    query, key, value = _normal(3, 2, 4, 5, 6).unbind(0)
    attend = per_sample(functional.scaled_dot_product_attention)
    assert attend is not None
    expected = functional.scaled_dot_product_attention(query, key, value, **options)
    found = attend(_site(2), query, key, value, dropout_p=NEXT_TO_NOTHING, **options)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)
    dropped = attend(_site(2), query, key, value, dropout_p=0.5, **options)
    assert not torch.allclose(dropped, expected)


def test_a_row_without_an_allowed_key_gives_zeros() -> None:
    query, key, value = (part.requires_grad_() for part in _normal(3, 2, 4, 5, 6).unbind(0))
    mask = torch.ones(5, 5, dtype=torch.bool)
    mask[2] = False
    attend = per_sample(functional.scaled_dot_product_attention)
    assert attend is not None
    for given in (mask, torch.zeros(5, 5, dtype=torch.float64).masked_fill(~mask, -torch.inf)):
        outputs = attend(_site(2), query, key, value, attn_mask=given, dropout_p=0.3)
        assert torch.equal(outputs[:, :, 2], torch.zeros(2, 4, 6, dtype=torch.float64))
        gradients = torch.autograd.grad(outputs.sum(), (query, key, value))
        assert all(bool(gradient.isfinite().all()) for gradient in gradients)


def test_grouped_queries() -> None:
    query, key, value = _normal(2, 4, 5, 6), _normal(2, 2, 5, 6), _normal(2, 2, 5, 6)
    attend = per_sample(functional.scaled_dot_product_attention)
    assert attend is not None
    expected = functional.scaled_dot_product_attention(query, key, value, enable_gqa=True)
    found = attend(_site(2), query, key, value, dropout_p=NEXT_TO_NOTHING, enable_gqa=True)
    assert torch.allclose(found, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("need_weights", [True, False])
def test_multi_head_attention_is_torchs(need_weights: bool) -> None:
    layer = nn.MultiheadAttention(6, 2, dropout=NEXT_TO_NOTHING).double()
    rows = _normal(5, 3, 6)
    arguments = (rows, rows, rows, 6, 2, layer.in_proj_weight, layer.in_proj_bias, None, None, False)
    options = {
        "out_proj_weight": layer.out_proj.weight,
        "out_proj_bias": layer.out_proj.bias,
        "need_weights": need_weights,
    }
    attend: Any = per_sample(functional.multi_head_attention_forward)
    expected: Any = functional.multi_head_attention_forward
    found, _ = attend(_site(3), *arguments, NEXT_TO_NOTHING, **options)
    assert torch.allclose(found, expected(*arguments, 0.0, **options)[0], rtol=0, atol=1e-12)
    assert not torch.allclose(attend(_site(3), *arguments, 0.5, **options)[0], found)


@pytest.mark.parametrize(
    "function",
    [functional.dropout, functional.dropout2d, functional.alpha_dropout, functional.feature_alpha_dropout],
)
def test_nothing_is_dropped_outside_training(function: Any) -> None:
    drawn = per_sample(function)
    assert drawn is not None
    inputs = torch.ones(4, 8, 2)
    assert drawn(_site(4), inputs, 0.5, False) is inputs
    assert not torch.equal(drawn(_site(4), inputs, 0.5, True), inputs)
    assert drawn(_site(4), inputs, 0.5, True, True) is inputs


def test_functions_that_draw_are_told_from_others() -> None:
    drawing = (functional.dropout, torch.rand, torch.randn_like, Tensor.bernoulli_, functional.gumbel_softmax)
    assert all(map(is_drawing_function, drawing))
    others = (torch.relu, functional.linear, Tensor.add_, Tensor.shape.__get__, lambda: 0)  # type: ignore[attr-defined]
    assert not any(map(is_drawing_function, others))


def test_steps_that_draw_are_told_from_others() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.dropout(x.new_empty(x.shape).bernoulli_(0.5) + torch.relu(x))

    graph = fx.symbolic_trace(Net()).graph
    assert [node.name for node in graph.nodes if draws_at(node) is not None] == ["bernoulli_", "dropout"]
