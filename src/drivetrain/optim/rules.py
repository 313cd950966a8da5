"""SGD, Adam, RMSprop and LARS over one flat vector of weights."""

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from drivetrain.optim.flat_parameters import Segment

__all__ = ["Adam", "BuildOptimiser", "Lars", "Optimiser", "RmsProp", "Sgd"]

# LARS divides by a norm plus epsilon; an epsilon of 0 is replaced.
_EPSILON_FOR_ZERO = 1e-7


class Optimiser(Protocol):
    """An optimiser; its `states` are flat tensors of the same layout, named for checkpoints."""

    @property
    def states(self) -> dict[str, Tensor]:
        """The states by name; writing to them changes the optimiser."""

    def step(self, *, values: Tensor, gradients: Tensor, rate: Tensor, update: Tensor) -> None:
        """One weight update in place; `rate` and `update` are tensors on the device."""


class BuildOptimiser(Protocol):
    """Builds the optimiser of a flat vector of weights, or of a part of one."""

    def __call__(self, *, values: Tensor, segments: Sequence[Segment]) -> Optimiser:
        """For weights laid out like `values`, in which `segments` lie."""


# weight -= rate * decay * weight; velocity = momentum * velocity - rate * gradient; weight += velocity.
# The rate is inside the velocity, so a change of rate acts on new gradients only. With Nesterov's momentum,
# as Keras has it, the last step is weight += momentum * velocity - rate * gradient.


class Sgd:
    """SGD with momentum and decoupled weight decay; without momentum it keeps no state."""

    def __init__(
        self, values: Tensor, *, momentum: float = 0.0, nesterov: bool = False, weight_decay: float = 0.0
    ) -> None:
        self.momentum, self.nesterov = momentum, nesterov
        self.weight_decay = weight_decay
        self.states: dict[str, Tensor] = {"velocity": torch.zeros_like(values)} if momentum else {}

    @torch.no_grad()
    def step(self, *, values: Tensor, gradients: Tensor, rate: Tensor, update: Tensor) -> None:  # noqa: ARG002
        if self.weight_decay:
            values.mul_(1.0 - rate * self.weight_decay)
        if not self.momentum:
            values.addcmul_(gradients, rate.to(values.dtype), value=-1.0)
            return
        velocity = self.states["velocity"]
        velocity.mul_(self.momentum).addcmul_(gradients, rate.to(values.dtype), value=-1.0)
        if not self.nesterov:
            values.add_(velocity)
            return
        values.add_(velocity, alpha=self.momentum).addcmul_(gradients, rate.to(values.dtype), value=-1.0)


class Adam:
    """Adam with bias correction; a weight decay is decoupled (AdamW) and shrinks weights by rate x decay.

    With `bare_epsilon`, epsilon is added to the root before the root is corrected, as Keras does.
    """

    def __init__(
        self,
        values: Tensor,
        *,
        beta1: float,
        beta2: float,
        epsilon: float,
        bare_epsilon: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
        self.bare_epsilon = bare_epsilon
        self.weight_decay = weight_decay
        self.states: dict[str, Tensor] = {
            "mean": torch.zeros_like(values),
            "square": torch.zeros_like(values),
        }

    @torch.no_grad()
    def step(self, *, values: Tensor, gradients: Tensor, rate: Tensor, update: Tensor) -> None:
        mean, square = self.states["mean"], self.states["square"]
        count = update.to(rate.dtype) + 1.0
        mean_correction = 1.0 - torch.pow(self.beta1, count)
        square_correction = 1.0 - torch.pow(self.beta2, count)
        if self.weight_decay:
            values.mul_(1.0 - rate * self.weight_decay)
        mean.lerp_(gradients, 1.0 - self.beta1)
        square.mul_(self.beta2).addcmul_(gradients, gradients, value=1.0 - self.beta2)
        if self.bare_epsilon:
            divisor = square.sqrt().add_(self.epsilon).div_(square_correction.sqrt())
        else:
            divisor = (square / square_correction).sqrt_().add_(self.epsilon)
        values.addcmul_(mean / divisor, (rate / mean_correction).to(values.dtype), value=-1.0)


# square = rho * square + (1 - rho) * gradient^2; change = rate * gradient / sqrt(square - mean^2 + epsilon),
# with the running mean of the gradient only if centred; velocity = momentum * velocity + change; weight -=
# velocity.


class RmsProp:
    """RMSprop as Keras has it: epsilon is inside the root, the rate inside the velocity."""

    def __init__(
        self,
        values: Tensor,
        *,
        rho: float,
        momentum: float,
        epsilon: float,
        centered: bool,
        weight_decay: float = 0.0,
    ) -> None:
        self.rho, self.momentum, self.epsilon, self.centered = rho, momentum, epsilon, centered
        self.weight_decay = weight_decay
        names = ["square", *(["velocity"] if momentum else []), *(["mean"] if centered else [])]
        self.states: dict[str, Tensor] = {name: torch.zeros_like(values) for name in names}

    @torch.no_grad()
    def step(self, *, values: Tensor, gradients: Tensor, rate: Tensor, update: Tensor) -> None:  # noqa: ARG002
        if self.weight_decay:
            values.mul_(1.0 - rate * self.weight_decay)
        square = self.states["square"].mul_(self.rho)
        square.addcmul_(gradients, gradients, value=1.0 - self.rho)
        divisor = square + self.epsilon
        if self.centered:
            mean = self.states["mean"].lerp_(gradients, 1.0 - self.rho)
            divisor.addcmul_(mean, mean, value=-1.0)
        change = divisor.sqrt_().reciprocal_().mul_(gradients).mul_(rate.to(values.dtype))
        if self.momentum:
            change = self.states["velocity"].mul_(self.momentum).add_(change)
        values.sub_(change)


# Layer-wise adaptive rates (LARS), for large batches.
#
# Each parameter has a trust = eeta * |w| / (|g| + decay * |w| + epsilon), or 1 where a norm is 0. Then
# velocity = momentum * velocity - rate * trust * (g + decay * w); w += velocity. Biases and the scales and
# shifts of normalisation layers, which are the parameters of fewer than two dimensions, have trust 1 and
# no decay.


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
        # Before the decay is added: the trust is computed from the norm of the bare gradient.
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
