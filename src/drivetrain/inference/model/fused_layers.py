"""Replaces layers of a trained model by faster ones for 16-bit inference on CUDA, before it is compiled.

- A convolution and its ReLU become one operation.
- A convolution with few products per output value, such as the first one of a grey image, becomes a matrix
  product over image patches: convolution kernels are slow with few channels.
- An up-convolution whose windows do not overlap becomes a matrix product, too.

Layers with a forward of their own or with hooks are not replaced.
"""

import copy

import torch
from torch import Tensor, nn
from torch.nn import functional

from drivetrain.inference.model.fold_batch_norm import find_followers, is_untouched
from drivetrain.models.zoo.layers import ConvRelu, UpConvRelu

__all__ = ["conv_relu", "fuse_layers", "linear_relu"]

# Up to so many products per output value a convolution runs as a matrix product: 3x3 with up to 3 channels.
_FEW_PRODUCTS = 32
# The fastest matrix products need rows that start at multiples of 16 bytes, which are 8 numbers of 16 bits.
_ROW_MULTIPLE = 8


# Custom operations, which torch.compile does not take apart: on CUDA, cuDNN and cuBLAS add the bias and apply
# the ReLU before they write the result, which saves a pass over memory. On other devices the same is computed
# in steps. Images are channels_last, in and out.


@torch.library.custom_op("drivetrain::conv_relu", mutates_args=())
def conv_relu(images: Tensor, weight: Tensor, bias: Tensor, stride: list[int], padding: list[int]) -> Tensor:
    """A convolution (one group, no dilation), its bias and a ReLU."""
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
    """A matrix product, its bias and a ReLU."""
    if rows.is_cuda:
        return torch._addmm_activation(bias, rows, weight)
    return torch.addmm(bias, rows, weight).relu_()


@linear_relu.register_fake
def _(rows: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    del bias
    return rows.new_empty(rows.shape[0], weight.shape[1])


def fuse_layers(model: nn.Module, *, dtype: torch.dtype) -> nn.Module:
    """A copy in evaluation mode with faster layers; `dtype` is that of weights and outputs."""
    pairs = find_followers(model, before=(nn.Conv2d,), after=(nn.ReLU,))
    fused = copy.deepcopy(model).eval()
    for convolution_name, relu_name in pairs:
        convolution = fused.get_submodule(convolution_name)
        assert isinstance(convolution, nn.Conv2d)
        if _is_plain(convolution):
            fused.set_submodule(convolution_name, _fused(convolution, dtype))
            fused.set_submodule(relu_name, nn.Identity())
    for name, layer in [*fused.named_modules()]:
        if type(layer) is ConvRelu and _is_plain(layer):
            fused.set_submodule(name, _fused(layer, dtype))
        elif type(layer) is UpConvRelu and is_untouched(layer) and layer.kernel_size == layer.stride:
            fused.set_submodule(name, _MatrixUpConvRelu(layer, dtype))
    return fused


def _fused(convolution: nn.Conv2d, dtype: torch.dtype) -> nn.Module:
    is_small = convolution.weight[0].numel() <= _FEW_PRODUCTS
    kind = _PatchConvRelu if is_small and convolution.stride == (1, 1) else _FusedConvRelu
    return kind(convolution, dtype)


def _is_plain(convolution: nn.Conv2d) -> bool:
    """Whether `conv_relu` can compute this convolution."""
    return (
        is_untouched(convolution)
        and convolution.groups == 1
        and convolution.dilation == (1, 1)
        and convolution.padding_mode == "zeros"
        and not isinstance(convolution.padding, str)
    )


def _bias(layer: nn.Conv2d | nn.ConvTranspose2d, dtype: torch.dtype) -> Tensor:
    if layer.bias is None:
        return layer.weight.new_zeros(layer.out_channels, dtype=dtype)
    return layer.bias.detach().to(dtype)


class _FusedConvRelu(nn.Module):
    weight: Tensor
    bias: Tensor

    def __init__(self, convolution: nn.Conv2d, dtype: torch.dtype) -> None:
        super().__init__()
        weight = convolution.weight.detach().to(dtype)
        self.register_buffer("weight", weight.contiguous(memory_format=torch.channels_last))
        self.register_buffer("bias", _bias(convolution, dtype))
        self.stride = [*convolution.stride]
        self.padding = [int(around) for around in convolution.padding]

    def forward(self, images: Tensor) -> Tensor:
        ready = images.to(self.weight.dtype).contiguous(memory_format=torch.channels_last)
        outputs: Tensor = conv_relu(ready, self.weight, self.bias, self.stride, self.padding)
        return outputs


class _PatchConvRelu(nn.Module):
    matrix: Tensor
    bias: Tensor

    def __init__(self, convolution: nn.Conv2d, dtype: torch.dtype) -> None:
        super().__init__()
        self.height, self.width = convolution.kernel_size
        self.outputs = convolution.out_channels
        products = convolution.weight[0].numel()
        self.missing = -products % _ROW_MULTIPLE
        rows, columns = (int(around) for around in convolution.padding)
        self.around = (columns, columns, rows, rows)
        matrix = convolution.weight.detach().to(dtype).reshape(self.outputs, products).t()
        self.register_buffer("matrix", functional.pad(matrix, (0, 0, 0, self.missing)).contiguous())
        self.register_buffer("bias", _bias(convolution, dtype))

    def forward(self, images: Tensor) -> Tensor:
        padded = functional.pad(images.to(self.matrix.dtype), self.around)
        windows = padded.unfold(2, self.height, 1).unfold(3, self.width, 1)
        count, _, height, width = windows.shape[:4]
        # From (image, channel, row, column, window row, window column) to one row per window.
        rows = windows.permute(0, 2, 3, 1, 4, 5).reshape(count * height * width, -1)
        rows = functional.pad(rows, (0, self.missing))
        outputs: Tensor = linear_relu(rows, self.matrix, self.bias)
        return outputs.view(count, height, width, self.outputs).permute(0, 3, 1, 2)


class _MatrixUpConvRelu(nn.Module):
    matrix: Tensor
    bias: Tensor

    def __init__(self, layer: UpConvRelu, dtype: torch.dtype) -> None:
        super().__init__()
        self.factor, self.outputs = layer.kernel_size[0], layer.out_channels
        weight = layer.weight.detach().to(dtype).permute(0, 2, 3, 1)
        self.register_buffer("matrix", weight.reshape(layer.in_channels, -1).contiguous())
        self.register_buffer("bias", _bias(layer, dtype))

    def forward(self, images: Tensor) -> Tensor:
        count, channels, height, width = images.shape
        rows = images.to(self.matrix.dtype).permute(0, 2, 3, 1).reshape(-1, channels)
        blocks = (rows @ self.matrix).view(count, height, width, self.factor, self.factor, self.outputs)
        grown = (blocks + self.bias).relu().permute(0, 5, 1, 3, 2, 4)
        return grown.reshape(count, self.outputs, height * self.factor, width * self.factor)
