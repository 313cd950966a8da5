"""Stochastic gradient descent with momentum and decoupled weight decay.

weight -= rate * decay * weight; velocity = momentum * velocity - rate * gradient; weight += velocity.
The rate is inside the velocity, so a change of rate acts on new gradients only.
"""

import torch
from torch import Tensor


class Sgd:
    """Momentum 0 keeps no state."""

    def __init__(self, values: Tensor, *, momentum: float = 0.0, weight_decay: float = 0.0) -> None:
        self.momentum = momentum
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
        values.add_(velocity)
