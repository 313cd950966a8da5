"""Initial weights: each parameter has a random stream by its name, so the order of layers does not matter.

The distributions are those of Keras. They are drawn in float64 and rounded once, so that the bits do not
depend on how a processor's vector instructions round.
"""

import math
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from drivetrain.core.randomness import stream_key

Initialiser = Callable[[Tensor, torch.Generator], None]

# The standard deviation of a standard normal distribution truncated at +-2; dividing by it restores the
# wanted variance.
_TRUNCATED_DEVIATION = 0.87962566103423978
_TRUNCATION = 2.0


class InitialisedModel(nn.Module):
    """Base class of all models here; a family overrides `initialiser_of` to depart from Keras' defaults."""

    def initialiser_of(self, parameter_name: str) -> Initialiser:
        """The initialiser of a parameter: 0 for biases, 1 for scales of norms, Glorot uniform for kernels."""
        layer_name, _, role = parameter_name.rpartition(".")
        if role == "bias":
            return zeros
        is_norm = isinstance(self.get_submodule(layer_name), _BatchNorm | nn.GroupNorm)
        return ones if is_norm else glorot_uniform


@torch.no_grad()
def initialise_parameters(model: InitialisedModel, *, seed: int) -> None:
    """Draws every parameter of a model from a random stream that depends on its name."""
    for name, parameter in model.named_parameters():
        generator = torch.Generator().manual_seed(stream_key(seed, "init", name))
        model.initialiser_of(name)(parameter, generator)


def variance_scaling(tensor: Tensor, generator: torch.Generator) -> None:
    """Truncated normal of variance 1 / fan_in (Keras' VarianceScaling with its defaults)."""
    _draw_truncated_normal(tensor, variance=1.0 / _fans(tensor)[0], generator=generator)


def he_normal(tensor: Tensor, generator: torch.Generator) -> None:
    """Truncated normal of variance 2 / fan_in, which keeps the variance through a ReLU."""
    _draw_truncated_normal(tensor, variance=2.0 / _fans(tensor)[0], generator=generator)


def he_normal_fan_out(tensor: Tensor, generator: torch.Generator) -> None:
    """Truncated normal of variance 2 / fan_out, which keeps the variance of gradients through a ReLU."""
    _draw_truncated_normal(tensor, variance=2.0 / _fans(tensor)[1], generator=generator)


def glorot_uniform(tensor: Tensor, generator: torch.Generator) -> None:
    """Uniform within sqrt(6 / (fan_in + fan_out)) of zero."""
    limit = math.sqrt(6.0 / sum(_fans(tensor)))
    tensor.copy_(_draw_uniform(tensor, low=-limit, high=limit, generator=generator))


def fan_out_uniform(tensor: Tensor, generator: torch.Generator) -> None:
    """Uniform within sqrt(1 / fan_out) of zero."""
    limit = math.sqrt(1.0 / _fans(tensor)[1])
    tensor.copy_(_draw_uniform(tensor, low=-limit, high=limit, generator=generator))


def normal(deviation: float) -> Initialiser:
    """Normal of a fixed standard deviation around zero."""

    def initialise(tensor: Tensor, generator: torch.Generator) -> None:
        # The quantiles of -1 and 1 are infinite.
        below_one = math.nextafter(1.0, 0.0)
        draws = _draw_uniform(tensor, low=-below_one, high=below_one, generator=generator)
        tensor.copy_(draws.erfinv_().mul_(math.sqrt(2.0) * deviation))

    return initialise


def zeros(tensor: Tensor, _generator: torch.Generator) -> None:
    """All 0; draws nothing."""
    tensor.zero_()


def ones(tensor: Tensor, _generator: torch.Generator) -> None:
    """All 1; draws nothing."""
    tensor.fill_(1.0)


def _draw_truncated_normal(tensor: Tensor, *, variance: float, generator: torch.Generator) -> None:
    deviation = math.sqrt(variance) / _TRUNCATED_DEVIATION
    half_mass = math.erf(_TRUNCATION / math.sqrt(2.0))
    draws = _draw_uniform(tensor, low=-half_mass, high=half_mass, generator=generator)
    bound = _TRUNCATION * deviation
    tensor.copy_(draws.erfinv_().mul_(math.sqrt(2.0) * deviation).clamp_(-bound, bound))


def _draw_uniform(tensor: Tensor, *, low: float, high: float, generator: torch.Generator) -> Tensor:
    return torch.empty(tensor.shape, dtype=torch.float64, device="cpu").uniform_(
        low, high, generator=generator
    )


def _fans(kernel: Tensor) -> tuple[int, int]:
    """fan_in and fan_out of a kernel with the layout (outputs, inputs, height, width).

    The kernel of a transposed convolution has inputs and outputs swapped, so its fans are swapped too, as in
    Keras; Glorot's rule only uses their sum.
    """
    receptive_field = kernel[0, 0].numel()
    return kernel.shape[1] * receptive_field, kernel.shape[0] * receptive_field
