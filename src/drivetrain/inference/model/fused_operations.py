"""Products with the ReLU behind them as one operation, which torch.compile leaves whole.

On a CUDA device cuDNN and cuBLAS add the bias and cut off at zero before they write anything, so that no pass
over memory is left for it. Elsewhere the same is computed in steps. Images are channels_last, in and out.
"""

import torch
from torch import Tensor
from torch.nn import functional

__all__ = ["conv_relu", "linear_relu"]


@torch.library.custom_op("drivetrain::conv_relu", mutates_args=())
def conv_relu(images: Tensor, weight: Tensor, bias: Tensor, stride: list[int], padding: list[int]) -> Tensor:
    """A convolution of all channels, its bias and its ReLU."""
    if images.is_cuda:
        return torch.cudnn_convolution_relu(images, weight, bias, stride, padding, [1, 1], 1)
    outputs = functional.conv2d(images, weight, bias, stride, padding).relu_()
    return outputs.contiguous(memory_format=torch.channels_last)


@conv_relu.register_fake
def _(images: Tensor, weight: Tensor, bias: Tensor, stride: list[int], padding: list[int]) -> Tensor:
    del bias
    size = [
        (length + 2 * around - kernel) // step + 1
        for length, kernel, step, around in zip(
            images.shape[2:], weight.shape[2:], stride, padding, strict=True
        )
    ]
    shape = (len(images), len(weight), *size)
    return torch.empty(shape, dtype=images.dtype, device=images.device, memory_format=torch.channels_last)


@torch.library.custom_op("drivetrain::linear_relu", mutates_args=())
def linear_relu(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Rows times a matrix, the bias and the ReLU."""
    if rows.is_cuda:
        return torch._addmm_activation(bias, rows, weight)
    return torch.addmm(bias, rows, weight).relu_()


@linear_relu.register_fake
def _(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    del bias
    return rows.new_empty(rows.shape[0], weight.shape[1])
