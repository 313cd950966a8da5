"""Adam, and AdamW where a decoupled weight decay is given."""

import torch
from torch import Tensor


class Adam:
    """Bias-corrected first and second moments; the decay shrinks weights by rate x decay."""

    def __init__(
        self, values: Tensor, *, beta1: float, beta2: float, epsilon: float, weight_decay: float = 0.0
    ) -> None:
        self.beta1, self.beta2, self.epsilon = beta1, beta2, epsilon
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
        divisor = (square / square_correction).sqrt_().add_(self.epsilon)
        values.addcmul_(mean / divisor, (rate / mean_correction).to(values.dtype), value=-1.0)
