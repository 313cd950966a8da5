"""Layers whose random draws are known, in a form that draws per sample by their place in the model.

A layer keeps its object, attributes and hooks; only its class becomes a subclass with another forward pass.
"""

from collections.abc import Callable

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
_PROBED_ROWS = 64


def alpha_drop(inputs: Tensor, *, rate: float, site: Site, whole_channels: bool) -> Tensor:
    """Alpha dropout: dropped values become SELU's negative limit, mean and variance are kept."""
    if rate == 0:
        return inputs
    if rate == 1:
        return inputs * 0
    draw = site.next_draw(inputs.shape)
    if draw is None:
        return inputs.clone()
    shape = channel_shape(inputs.shape) if whole_channels else inputs.shape
    is_kept = levels_in(shape, draw) >= round(rate * NUM_LEVELS) - NUM_LEVELS // 2
    scale: float = ((_ALPHA**2 * rate + 1) * (1 - rate)) ** -0.5
    kept = is_kept.to(inputs.dtype)
    return inputs * (kept * scale) + ((kept - 1) * (_ALPHA * scale) + _ALPHA * scale * rate)


def random_slope(inputs: Tensor, *, lower: float, upper: float, site: Site) -> Tensor:
    """RReLU in training: negative values are multiplied by a slope between the limits."""
    draw = site.next_draw(inputs.shape)
    if draw is None:
        return inputs.clone()
    slopes = uniform_in(inputs.shape, draw, dtype=inputs.dtype) * (upper - lower) + lower
    return torch.where(inputs <= 0, inputs * slopes, inputs)


def drop_paths(inputs: Tensor, *, rate: float, site: Site, is_scaled: bool, of_batch: bool = False) -> Tensor:
    """Stochastic depth: drops all of a row, or of the batch, at the rate given."""
    if rate == 0:
        return inputs
    shape = torch.Size([1 if of_batch else len(inputs), *(1 for _ in inputs.shape[1:])])
    draw = site.next_draw(shape)
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
    if _is_stochastic_depth(module):
        return _subclass(kind, _stochastic_depth_forward)
    is_scaled = _drops_paths(module)
    return None if is_scaled is None else _subclass(kind, _path_forward(is_scaled=is_scaled))


def _subclass(kind: type[nn.Module], forward: Callable[..., Tensor]) -> type[nn.Module]:
    # The module's own name, so that class names in messages and `repr` stay what the user knows.
    members = {"forward": forward, "__module__": __name__, "__qualname__": kind.__name__}
    return type(kind.__name__, (kind,), members)


def _path_forward(*, is_scaled: bool) -> Callable[..., Tensor]:
    def forward(self: nn.Module, inputs: Tensor) -> Tensor:
        rate, site = self.drop_prob, self.site
        if not self.training or not rate:
            return inputs
        return drop_paths(inputs, rate=float(rate), site=site, is_scaled=is_scaled)  # type: ignore[arg-type]

    return forward


def _stochastic_depth_forward(self: nn.Module, input: Tensor) -> Tensor:
    if not self.training:
        return input
    of_batch = self.mode == "batch"
    return drop_paths(input, rate=float(self.p), site=self.site, is_scaled=True, of_batch=of_batch)  # type: ignore[arg-type]


def _is_stochastic_depth(module: nn.Module) -> bool:
    """Whether a module is torchvision's StochasticDepth."""
    kind = type(module)
    return kind.__name__ == "StochasticDepth" and kind.__module__.startswith("torchvision.")


@torch.no_grad()
def _drops_paths(module: nn.Module) -> bool | None:
    """Whether a DropPath module scales what it keeps; None if it is no such module.

    timm, transformers and many projects have a copy of this class. It is recognised by name, attribute and
    what it does to rows of ones.
    """
    rate = getattr(module, "drop_prob", None)
    is_named = type(module).__name__.endswith("DropPath") and isinstance(rate, int | float)
    if not is_named or module._forward_hooks:
        return None
    if next(module.children(), None) is not None or module._parameters or module._buffers or not rate:
        return None
    was_training = module.training
    module.training = True
    try:
        with torch.random.fork_rng(devices=[]):
            rows = module(torch.ones(_PROBED_ROWS, 2, 3))
    except Exception:
        return None
    finally:
        module.training = was_training
    kept = {1.0 / (1.0 - rate) if rate < 1 else 0.0: True, 1.0: False}
    for value, is_scaled in kept.items():
        is_row = (rows == 0).all(dim=(1, 2)) | torch.isclose(rows, torch.tensor(value)).all(dim=(1, 2))
        if bool(is_row.all()):
            return is_scaled
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
