"""Layer-wise adaptive rates (LARS), for large batches.

Each parameter has a trust = eeta * |w| / (|g| + decay * |w| + epsilon), or 1 where a norm is 0. Then
velocity = momentum * velocity - rate * trust * (g + decay * w); w += velocity. Biases and the scales and
shifts of normalisation layers, which are the parameters of fewer than two dimensions, have trust 1 and
no decay.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from drivetrain.optim.flat_parameters import Segment

_EPSILON_FOR_ZERO = 1e-7


class Lars:
    """One trust for each parameter of two or more dimensions; nothing is fetched from the device."""

    def __init__(
        self,
        values: Tensor,
        *,
        segments: Sequence[Segment],
        momentum: float,
        weight_decay: float,
        eeta: float,
        epsilon: float,
    ) -> None:
        self.momentum, self.weight_decay, self.eeta = momentum, weight_decay, eeta
        self.epsilon = epsilon or _EPSILON_FOR_ZERO
        self.states: dict[str, Tensor] = {"velocity": torch.zeros_like(values)}
        self._adapted = [segment for segment in segments if len(segment.shape) > 1]

    @torch.no_grad()
    def step(self, *, values: Tensor, gradients: Tensor, rate: Tensor, update: Tensor) -> None:  # noqa: ARG002
        change = gradients.clone()
        if self._adapted:
            self._adapt_(self._parts(change), weights=self._parts(values))
        velocity = self.states["velocity"]
        velocity.mul_(self.momentum).addcmul_(change, rate.to(values.dtype), value=-1.0)
        values.add_(velocity)

    def _adapt_(self, changes: list[Tensor], *, weights: list[Tensor]) -> None:
        """Gradients become decayed gradients times their trust, in place."""
        trusts = self._trusts(
            torch.stack(torch._foreach_norm(weights)), torch.stack(torch._foreach_norm(changes))
        )
        torch._foreach_add_(changes, weights, alpha=self.weight_decay)
        torch._foreach_mul_(changes, list(trusts.unbind()))

    def _trusts(self, weight_norms: Tensor, gradient_norms: Tensor) -> Tensor:
        longest = gradient_norms + self.weight_decay * weight_norms + self.epsilon
        is_known = (weight_norms > 0) & (gradient_norms > 0)
        return torch.where(is_known, self.eeta * weight_norms / longest, 1.0)

    def _parts(self, flat: Tensor) -> list[Tensor]:
        return [flat[segment.start : segment.start + segment.numel] for segment in self._adapted]
