"""A site: a layer or function that draws numbers per sample, as functions of their address."""

from dataclasses import dataclass

import torch
from torch import Tensor

from drivetrain.core.element_hash import GOLDEN_SIGNED, NUM_LEVELS, draw_levels, mix_words, signed
from drivetrain.core.randomness import MULTIPLIER_1
from drivetrain.layers.context import NO_SAMPLES, ROWS_APART, UpdateContext

__all__ = ["Draw", "Site", "levels_in", "uniform_in"]


@dataclass(frozen=True, slots=True)
class Draw:
    """The address of one tensor of draws: a key per sample, and the dimension that holds the samples.

    Without such a dimension there is a single key for the whole tensor.
    """

    keys: Tensor
    sample_dim: int | None


@dataclass(frozen=True, slots=True)
class Site:
    """A layer or function that draws; `key` is that of its place in the model."""

    key: int
    context: UpdateContext

    def next_draw(self, shape: torch.Size, inputs: Tensor | None = None) -> Draw | None:
        """The address of the next draw of `shape` for `inputs`; None in a rehearsal, which notes them."""
        context = self.context
        use = context.count_use(self.key)
        if context.shapes is not None:
            context.shapes[self.key, use] = shape
            if inputs is not None:
                context.inputs[self.key, use] = inputs.detach()
            return None
        update_key = mix_words(context.update * GOLDEN_SIGNED + self._key_of(use))
        dim = context.sample_dims.get((self.key, use), 0)
        if dim is None:
            # Not a sample's own: the same numbers in all micro-batches of an update, however many there are.
            return Draw(update_key.unsqueeze(0), None)
        sample_keys = mix_words(update_key + context.slots * GOLDEN_SIGNED)
        rows_apart = dim == ROWS_APART
        dim = 0 if rows_apart else dim
        if dim == NO_SAMPLES or dim >= len(shape) or shape[dim] % len(context.slots):
            # No dimension fits the samples: the draw belongs to the micro-batch, named by its first sample.
            return Draw(sample_keys[:1], None)
        return Draw(sample_keys, ROWS_APART if rows_apart else dim)

    def _key_of(self, use: int) -> int:
        """A layer that runs several times in one pass has other draws each time."""
        return signed((self.key + use * MULTIPLIER_1) % (1 << 64))


def levels_in(shape: torch.Size, draw: Draw) -> Tensor:
    """Uniform int16 levels of a shape; the levels of a sample depend on its key alone.

    With one row per sample, elements are numbered channels last.
    """
    samples, dim = len(draw.keys), draw.sample_dim
    rows = draw_levels(draw.keys, shape.numel() // samples)
    if dim is None:
        return rows.view(shape)
    if dim == ROWS_APART:
        return rows.view(samples, -1, *shape[1:]).movedim(0, 1).reshape(shape)
    if dim == 0 and len(shape) > 2 and shape[0] == samples:
        return rows.view(shape[0], *shape[2:], shape[1]).movedim(-1, 1)
    others = [length for place, length in enumerate(shape) if place != dim]
    return rows.view(shape[dim], *others).movedim(0, dim)


def uniform_in(shape: torch.Size, draw: Draw, *, dtype: torch.dtype) -> Tensor:
    """Uniform numbers between 0 and 1, in steps of 1/65536."""
    return (levels_in(shape, draw).to(torch.float32) + (NUM_LEVELS // 2 + 0.5)).div_(NUM_LEVELS).to(dtype)
