"""Steps of a network that torch.nn has no module for; each is a leaf with a name of its own."""

from torch import Tensor, nn
from torch.nn import functional


class Conv2dSame(nn.Conv2d):
    """A convolution whose output is ceil(size / stride): it pads what is missing, the odd one after."""

    def forward(self, inputs: Tensor) -> Tensor:
        height, width = inputs.shape[-2:]
        top, bottom = same_padding(height, kernel_size=self.kernel_size[0], stride=self.stride[0])
        left, right = same_padding(width, kernel_size=self.kernel_size[1], stride=self.stride[1])
        return super().forward(functional.pad(inputs, (left, right, top, bottom)))


def same_padding(size: int, *, kernel_size: int, stride: int) -> tuple[int, int]:
    """Zeros before and after one dimension of `size`, so that it shrinks by the stride alone."""
    num_outputs = -(-size // stride)
    missing = max((num_outputs - 1) * stride + kernel_size - size, 0)
    return missing // 2, missing - missing // 2


class Add(nn.Module):
    """The sum of two branches."""

    def forward(self, branch: Tensor, shortcut: Tensor) -> Tensor:
        return branch + shortcut


class Shortcut(nn.Module):
    """A shortcut without weights: every second pixel, and zeros for the channels that are new."""

    def __init__(self, *, new_channels: int) -> None:
        super().__init__()
        self.new_channels = new_channels

    def forward(self, inputs: Tensor) -> Tensor:
        # Slices fill and copy a gradient for each dimension; a window of one pixel is one pass.
        every_second = functional.avg_pool2d(inputs, 1, stride=2)
        return functional.pad(every_second, (0, 0, 0, 0, 0, self.new_channels))

    def extra_repr(self) -> str:
        return f"new_channels={self.new_channels}"


class GlobalMean(nn.Module):
    """The mean of every channel over all pixels."""

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.mean((2, 3))
