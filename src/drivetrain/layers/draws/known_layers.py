"""Layers whose random draws are known, in a form that draws per sample by their place in the model.

A layer keeps its object, attributes and hooks; only its class becomes a subclass with another forward pass.
"""

from functools import cache
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from drivetrain.core.element_hash import NUM_LEVELS, signed
from drivetrain.core.randomness import stream_key
from drivetrain.layers.context import UpdateContext
from drivetrain.layers.draws.dropout import channel_shape, dropout_class
from drivetrain.layers.draws.site import Site, levels_in, uniform_in

__all__ = ["alpha_drop", "drop_paths", "install_counter_dropout", "random_slope"]

# SELU's negative limit, -scale * alpha, as torch writes it.
_ALPHA = 1.7580993408473766
_PROBED_ROWS, _PROBED_RUNS = 1024, 64


def alpha_drop(inputs: Tensor, *, rate: float, site: Site, whole_channels: bool) -> Tensor:
    """Alpha dropout: dropped values become SELU's negative limit, mean and variance are kept."""
    if rate == 0:
        return inputs
    if rate == 1:
        return inputs * 0
    draw = site.next_draw(inputs.shape, inputs)
    if draw is None:
        return inputs.clone()
    shape = channel_shape(inputs.shape) if whole_channels else inputs.shape
    is_kept = levels_in(shape, draw) >= round(rate * NUM_LEVELS) - NUM_LEVELS // 2
    scale: float = ((_ALPHA**2 * rate + 1) * (1 - rate)) ** -0.5
    kept = is_kept.to(inputs.dtype)
    return inputs * (kept * scale) + ((kept - 1) * (_ALPHA * scale) + _ALPHA * scale * rate)


def random_slope(inputs: Tensor, *, lower: float, upper: float, site: Site) -> Tensor:
    """RReLU in training: negative values are multiplied by a slope between the limits."""
    draw = site.next_draw(inputs.shape, inputs)
    if draw is None:
        return inputs.clone()
    slopes = uniform_in(inputs.shape, draw, dtype=inputs.dtype) * (upper - lower) + lower
    return torch.where(inputs <= 0, inputs * slopes, inputs)


def drop_paths(inputs: Tensor, *, rate: float, site: Site, is_scaled: bool, of_batch: bool = False) -> Tensor:
    """Stochastic depth: drops all of a row, or of the batch, at the rate given."""
    if rate == 0:
        return inputs
    shape = torch.Size([1 if of_batch else len(inputs), *(1 for _ in inputs.shape[1:])])
    draw = site.next_draw(shape, inputs)
    if draw is None:
        return inputs.clone()
    is_kept = levels_in(shape, draw) >= round(rate * NUM_LEVELS) - NUM_LEVELS // 2
    scale = 1 / (1 - rate) if is_scaled and rate < 1 else 1.0
    return inputs * (is_kept.to(inputs.dtype) * scale)


class _Placed(nn.Module):
    site: Site


class _AlphaDropout(_Placed, nn.AlphaDropout):
    whole_channels = False

    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return input
        return alpha_drop(input, rate=self.p, site=self.site, whole_channels=self.whole_channels)


class _FeatureAlphaDropout(_AlphaDropout, nn.FeatureAlphaDropout):
    whole_channels = True


class _RandomReLU(_Placed, nn.RReLU):
    def forward(self, input: Tensor) -> Tensor:
        if not self.training:
            return functional.rrelu(input, self.lower, self.upper, False, self.inplace)
        outputs = random_slope(input, lower=self.lower, upper=self.upper, site=self.site)
        return input.copy_(outputs) if self.inplace else outputs


_CLASS_OF: dict[type[nn.Module], type[_Placed]] = {
    nn.AlphaDropout: _AlphaDropout,
    nn.FeatureAlphaDropout: _FeatureAlphaDropout,
    nn.RReLU: _RandomReLU,
}


def _class_for(module: nn.Module) -> type[nn.Module] | None:
    kind = type(module)
    known = dropout_class(kind) or _CLASS_OF.get(kind)
    if known is not None:
        return known
    # timm, torchvision, transformers and many projects have a copy of these classes. They are recognised by
    # name, attributes and what they do to rows of ones.
    if kind.__name__.endswith("DropPath"):
        scale = _scale_of_kept(module, getattr(module, "drop_prob", None), of_batch=False)
        return None if scale is None else _path_class(kind, "drop_prob", scale != 1, False)  # type: ignore[arg-type]
    if kind.__name__.endswith("StochasticDepth"):
        of_batch = getattr(module, "mode", None) == "batch"
        scale = _scale_of_kept(module, getattr(module, "p", None), of_batch=of_batch)
        return None if scale is None else _path_class(kind, "p", scale != 1, of_batch)  # type: ignore[arg-type]
    return None


@cache
def _path_class(kind: Any, rate_name: str, is_scaled: bool, of_batch: bool) -> Any:
    """A subclass of a user's class that draws by its place; it has the name that the user knows."""

    def forward(self: Any, input: Tensor) -> Tensor:
        rate = getattr(self, rate_name)
        if not self.training or not rate:
            return input
        return drop_paths(input, rate=float(rate), site=self.site, is_scaled=is_scaled, of_batch=of_batch)

    def reduce(self: Any, _protocol: int) -> tuple[Any, ...]:
        return _new_path_layer, (kind, rate_name, is_scaled, of_batch), vars(self)

    # Without `__reduce_ex__`, no other process could find a class that was made here.
    members = {"forward": forward, "__reduce_ex__": reduce, "__module__": __name__}
    return type(kind.__name__, (kind,), members)


def _new_path_layer(kind: Any, rate_name: str, is_scaled: bool, of_batch: bool) -> Any:
    made = _path_class(kind, rate_name, is_scaled, of_batch)
    return made.__new__(made)


@torch.no_grad()
def _scale_of_kept(module: nn.Module, rate: object, *, of_batch: bool) -> float | None:
    """By what a module multiplies the rows that it keeps, if it drops whole rows of ones; else None."""
    if not isinstance(rate, int | float) or not 0 < rate < 1 or module._forward_hooks:
        return None
    if next(module.children(), None) is not None or module._parameters or module._buffers:
        return None
    if len(signature(type(module).forward).parameters) != len(("self", "input")):
        return None
    was_training = module.training
    module.training = True
    try:
        with torch.random.fork_rng(devices=[]):
            # The same answer in every process.
            torch.default_generator.manual_seed(0)
            runs = [module(torch.ones(_PROBED_ROWS, 2, 3)) for _ in range(_PROBED_RUNS if of_batch else 1)]
    except Exception:
        return None
    finally:
        module.training = was_training
    # Of a batch that is dropped as a whole, only several runs show both outcomes.
    rows = torch.stack([run.flatten() for run in runs]) if of_batch else runs[0].flatten(1)
    for scale in (1 / (1 - rate), 1.0):
        is_dropped, is_kept = (rows == 0).all(1), torch.isclose(rows, torch.tensor(scale)).all(1)
        if bool((is_dropped | is_kept).all()) and bool(is_kept.any()):
            return scale
    return None


def install_counter_dropout(model: nn.Module, *, seed: int, context: UpdateContext) -> int:
    """Makes all known random layers of a model draw by their place in it; returns their number."""
    found = 0
    for name, module in model.named_modules():
        kind = _class_for(module) if name else None
        if kind is None:
            continue
        module.__class__ = kind
        module.site = Site(signed(stream_key(seed, "dropout", name)), context)
        found += 1
    return found
