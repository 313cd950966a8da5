"""Functions of torch that draw random numbers: which they are, and those that can draw per sample."""

import math
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node
from torch.nn import functional

from drivetrain.core.wording import words
from drivetrain.layers.draws.dropout import drop
from drivetrain.layers.draws.known_layers import alpha_drop, random_slope
from drivetrain.layers.draws.site import Site

__all__ = ["draws_at", "is_drawing_function", "per_sample"]

Handler = Callable[..., Tensor]

# Functions and methods of torch that draw, besides those of `_PER_SAMPLE`; all are overridable functions, so
# that a TorchFunctionMode and torch.fx see them.
_DRAWING = words(
    "bernoulli bernoulli_ binomial cauchy_ exponential_ fractional_max_pool2d fractional_max_pool3d "
    "fractional_max_pool2d_with_indices fractional_max_pool3d_with_indices geometric_ gumbel_softmax "
    "log_normal_ multinomial normal normal_ poisson rand rand_like randint randint_like randn "
    "randn_like random_ randperm uniform_ native_dropout feature_dropout alpha_dropout_ dropout_ "
    "feature_alpha_dropout_ feature_dropout_ rrelu_with_noise"
)


def _written(inputs: Tensor, outputs: Tensor, *, inplace: bool) -> Tensor:
    return inputs.copy_(outputs) if inplace and outputs is not inputs else outputs


def _dropout(
    site: Site, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    outputs = drop(input, rate=p, site=site) if training else input
    return _written(input, outputs, inplace=inplace)


def _channel_dropout(
    site: Site, input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    outputs = drop(input, rate=p, site=site, whole_channels=True) if training else input
    return _written(input, outputs, inplace=inplace)


def _plain_dropout(site: Site, input: Tensor, p: float, train: bool) -> Tensor:
    return _dropout(site, input, p, train)


def _alpha_dropout(
    site: Site, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    outputs = alpha_drop(input, rate=p, site=site, whole_channels=False) if training else input
    return _written(input, outputs, inplace=inplace)


def _feature_alpha_dropout(
    site: Site, input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
) -> Tensor:
    outputs = alpha_drop(input, rate=p, site=site, whole_channels=True) if training else input
    return _written(input, outputs, inplace=inplace)


def _rrelu(
    site: Site,
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    if not training:
        return functional.rrelu(input, lower, upper, False, inplace)
    outputs = random_slope(input, lower=lower, upper=upper, site=site)
    return _written(input, outputs, inplace=inplace)


def _attention(
    site: Site,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention with dropout, step by step: a fused kernel draws its mask from a generator."""
    if dropout_p == 0.0:
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask, 0.0, is_causal, scale=scale, enable_gqa=enable_gqa
        )
    if enable_gqa:
        key = key.repeat_interleave(query.size(-3) // key.size(-3), -3)
        value = value.repeat_interleave(query.size(-3) // value.size(-3), -3)
    factor = 1 / math.sqrt(query.size(-1)) if scale is None else scale
    scores = query @ key.transpose(-2, -1) * factor
    if is_causal:
        allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
        scores = scores.masked_fill(~allowed, -math.inf)
    if attn_mask is not None:
        is_bool = attn_mask.dtype == torch.bool
        scores = scores.masked_fill(~attn_mask, -math.inf) if is_bool else scores + attn_mask
    # A row without an allowed key gives zeros, as in torch, not the 0 / 0 of a softmax.
    is_empty = (scores == -math.inf).all(dim=-1, keepdim=True)
    weights = torch.softmax(scores.masked_fill(is_empty, 0.0), dim=-1).masked_fill(is_empty, 0.0)
    return drop(weights, rate=dropout_p, site=site) @ value


def _multi_head_attention(site: Site, *args: Any, **kwargs: Any) -> Any:
    """torch's own function, with its dropout drawn at the site.

    The function is run with globals of its own: as a whole it can be intercepted, its inner steps not.
    """
    original: Any = functional.multi_head_attention_forward
    names = {
        **original.__globals__,
        "has_torch_function": lambda _tensors: False,
        "dropout": lambda input, p=0.5, training=True: _dropout(site, input, p, training),
        "scaled_dot_product_attention": lambda *args: _attention(site, *args),
    }
    inner = FunctionType(original.__code__, names, original.__name__, original.__defaults__)
    inner.__kwdefaults__ = original.__kwdefaults__
    return inner(*args, **kwargs)


_PER_SAMPLE: dict[Any, Handler] = {
    functional.dropout: _dropout,
    functional.dropout1d: _channel_dropout,
    functional.dropout2d: _channel_dropout,
    functional.dropout3d: _channel_dropout,
    torch.dropout: _plain_dropout,
    functional.alpha_dropout: _alpha_dropout,
    functional.feature_alpha_dropout: _feature_alpha_dropout,
    functional.rrelu: _rrelu,
    functional.scaled_dot_product_attention: _attention,
    functional.multi_head_attention_forward: _multi_head_attention,
}


def per_sample(function: Any) -> Handler | None:
    """The version of a function that draws per sample, at the site it is given first; None if none exists."""
    return _PER_SAMPLE.get(function)


def is_drawing_function(function: Any) -> bool:
    """Whether a function or method may draw random numbers, depending on its arguments."""
    if function in _PER_SAMPLE:
        return True
    if getattr(function, "__name__", "") not in _DRAWING:
        return False
    home = getattr(function, "__module__", None) or getattr(function, "__objclass__", torch.Tensor).__module__
    return str(home).startswith("torch")


def draws_at(node: Node) -> Any:
    """The drawing function that a step of a traced model calls, or None."""
    if node.op == "call_method":
        function = getattr(torch.Tensor, str(node.target), None)
        return function if function is not None and is_drawing_function(function) else None
    is_drawing = node.op == "call_function" and is_drawing_function(node.target)
    return node.target if is_drawing else None
