"""The layers of the networks that torch.nn has no module for."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from drivetrain.core.errors import BadInputError
from drivetrain.models.zoo.layers import (
    Add,
    CentralCrop,
    Concatenate,
    Conv2dSame,
    ConvRelu,
    CropLike,
    GlobalMean,
    MaxPoolSame,
    PadToMultiple,
    Shortcut,
    UpConvRelu,
    same_padding,
)

CHANNELS_LAST = torch.channels_last


@pytest.mark.parametrize(
    ("size", "kernel_size", "stride", "expected"),
    [
        (32, 3, 2, (0, 1)),
        (33, 3, 2, (1, 1)),
        (1, 3, 2, (1, 1)),
        (2, 3, 2, (0, 1)),
        (32, 3, 1, (1, 1)),
        (7, 1, 2, (0, 0)),
        (8, 5, 2, (1, 2)),
    ],
)
def test_same_padding(size: int, kernel_size: int, stride: int, expected: tuple[int, int]) -> None:
    assert same_padding(size, kernel_size=kernel_size, stride=stride) == expected


def convolve_by_hand(image: torch.Tensor, kernel: torch.Tensor) -> torch.Tensor:
    """Stride 2, 3x3; the window of output i starts at 2i for even sizes and at 2i - 1 for odd ones."""
    size = image.shape[0]
    first = -(size % 2)
    num_outputs = (size + 1) // 2
    result = torch.zeros(num_outputs, num_outputs, dtype=image.dtype)
    for row in range(num_outputs):
        for column in range(num_outputs):
            for i in range(3):
                for j in range(3):
                    y, x = first + 2 * row + i, first + 2 * column + j
                    if 0 <= y < size and 0 <= x < size:
                        result[row, column] += image[y, x] * kernel[i, j]
    return result


@pytest.mark.parametrize("size", [1, 2, 5, 6])
def test_the_odd_row_is_padded_after(size: int) -> None:
    layer = Conv2dSame(1, 1, 3, stride=2, bias=False).double()
    image = torch.arange(1.0, size * size + 1, dtype=torch.float64).reshape(size, size)
    outputs = layer(image[None, None])[0, 0].detach()
    torch.testing.assert_close(
        outputs, convolve_by_hand(image, layer.weight.detach()[0, 0]), rtol=1e-12, atol=1e-12
    )


def test_symmetric_padding_is_something_else() -> None:
    layer = Conv2dSame(1, 1, 3, stride=2, bias=False)
    image = torch.rand(1, 1, 6, 6)
    symmetric = nn.functional.conv2d(image, layer.weight, stride=2, padding=1)
    assert not torch.allclose(layer(image), symmetric)


@pytest.mark.parametrize(("height", "width"), [(1, 2), (6, 7), (8, 8), (9, 3)])
def test_same_max_pooling_ignores_what_is_outside(height: int, width: int) -> None:
    inputs = -torch.rand(2, 3, height, width)
    rows, columns = (same_padding(size, kernel_size=3, stride=2) for size in (height, width))
    padded = functional.pad(inputs, (*columns, *rows), value=-torch.inf)
    assert torch.equal(MaxPoolSame()(inputs), functional.max_pool2d(padded, 3, stride=2))
    zeros = functional.pad(inputs, (*columns, *rows))
    assert not torch.equal(MaxPoolSame()(inputs), functional.max_pool2d(zeros, 3, stride=2))


@pytest.mark.parametrize("size", [4, 5])
def test_the_shortcut_takes_every_second_pixel_and_puts_new_channels_last(size: int) -> None:
    inputs = torch.rand(2, 3, size, size)
    outputs = Shortcut(new_channels=2)(inputs)
    assert outputs.shape == (2, 5, (size + 1) // 2, (size + 1) // 2)
    assert torch.equal(outputs[:, :3], inputs[:, :, ::2, ::2])
    assert not outputs[:, 3:].any()


def test_memory_stays_channels_last() -> None:
    inputs = torch.rand(2, 4, 6, 6).to(memory_format=torch.channels_last)
    for layer in (Conv2dSame(4, 8, 3, stride=2), Shortcut(new_channels=4)):
        assert layer(inputs).is_contiguous(memory_format=torch.channels_last)


def test_sum_and_mean() -> None:
    inputs = torch.rand(2, 4, 3, 3)
    assert torch.equal(Add()(inputs, inputs), 2 * inputs)
    torch.testing.assert_close(GlobalMean()(inputs), inputs.flatten(2).mean(2))


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize(
    ("size", "cropped", "offset"), [(568, 392, 88), (280, 200, 40), (136, 104, 16), (64, 56, 4)]
)
def test_crops_of_the_published_network(size: int, cropped: int, offset: int) -> None:
    rows = torch.arange(size, dtype=torch.float32)
    image = (1000 * rows[:, None] + rows)[None, None]
    middle = CentralCrop(pixels=offset)(image)
    assert middle.shape[-2:] == (cropped, cropped)
    assert middle[0, 0, 0, 0] == 1000 * offset + offset
    assert middle[0, 0, -1, -1] == 1001 * (size - 1 - offset)
    assert torch.equal(middle, image[..., offset:-offset, offset:-offset])


@pytest.mark.parametrize("shape", [(2, 3, 7, 9), (1, 4, 7, 7), (1, 1, 7, 8)])
def test_a_crop_is_a_copy_of_its_own_size(shape: tuple[int, ...]) -> None:
    image = random(*shape).contiguous(memory_format=CHANNELS_LAST)
    middle = CentralCrop(pixels=3)(image)
    assert middle.untyped_storage().nbytes() == 4 * middle.numel()
    assert middle.untyped_storage().data_ptr() != image.untyped_storage().data_ptr()
    a_view = image[..., 3:-3, 3:-3]
    assert a_view.untyped_storage().nbytes() > 4 * a_view.numel()


@pytest.mark.parametrize("memory_format", [CHANNELS_LAST, torch.contiguous_format])
def test_steps_keep_the_memory_format(memory_format: torch.memory_format) -> None:
    image = random(2, 4, 9, 10).contiguous(memory_format=memory_format)
    outputs = [
        CentralCrop(pixels=2)(image),
        Concatenate()(image, image),
        PadToMultiple(multiple=8)(image),
        CropLike()(image, random(2, 4, 7, 7)),
    ]
    assert all(output.is_contiguous(memory_format=memory_format) for output in outputs)
    other = torch.contiguous_format if memory_format == CHANNELS_LAST else CHANNELS_LAST
    assert not any(output.is_contiguous(memory_format=other) for output in outputs)


def test_the_gradient_of_a_crop_is_zero_outside() -> None:
    image = random(1, 2, 6, 7).requires_grad_()
    CentralCrop(pixels=2)(image).sum().backward()
    expected = torch.zeros(1, 2, 6, 7)
    expected[..., 2:-2, 2:-2] = 1
    assert image.grad is not None
    assert torch.equal(image.grad, expected)


def test_a_crop_larger_than_its_input_is_one_sentence() -> None:
    assert CentralCrop(pixels=4)(random(1, 1, 9, 9)).shape == (1, 1, 1, 1)
    with pytest.raises(BadInputError, match=r"8 x 9 pixels .* crop 4 on each side; a larger --image-size"):
        CentralCrop(pixels=4)(random(1, 1, 8, 9))


def test_a_convolution_with_its_relu() -> None:
    layer = ConvRelu(3, 5, 3)
    image = random(2, 3, 6, 6)
    plain = functional.conv2d(image, layer.weight, layer.bias)
    assert torch.equal(layer(image), plain.relu())
    assert bool((plain < 0).any())


def transposed_same(image: NDArray[np.float64], kernel: NDArray[np.float64]) -> NDArray[np.float64]:
    """Stride 2, as the gradient of a 'same' convolution that pads nothing before and what is missing after.

    `image` (height, width, inputs) and `kernel` (height, width, outputs, inputs), as TensorFlow has them.
    """
    height, width, _ = image.shape
    result = np.zeros((2 * height, 2 * width, kernel.shape[2]))
    for row in range(height):
        for column in range(width):
            for i in range(kernel.shape[0]):
                for j in range(kernel.shape[1]):
                    if 2 * row + i < 2 * height and 2 * column + j < 2 * width:
                        result[2 * row + i, 2 * column + j] += kernel[i, j] @ image[row, column]
    return result


def same_by_hand(image: Tensor, layer: nn.ConvTranspose2d) -> Tensor:
    kernel = layer.weight.detach().permute(2, 3, 1, 0).double().numpy()
    assert layer.bias is not None
    plain = transposed_same(image[0].permute(1, 2, 0).double().numpy(), kernel)
    return torch.from_numpy(plain).permute(2, 0, 1)[None] + layer.bias.detach().double()[:, None, None]


@pytest.mark.parametrize("kernel_size", [2, 3])
def test_up_convolutions_lie_where_tensorflow_has_them(kernel_size: int) -> None:
    layer = UpConvRelu(3, 2, kernel_size=kernel_size)
    image = random(1, 3, 4, 5)
    output = layer(image)
    assert output.shape == (1, 2, 8, 10)
    assert output.untyped_storage().nbytes() == 4 * output.numel()
    assert torch.allclose(output.double(), same_by_hand(image, layer).relu(), atol=1e-6)


def test_symmetric_padding_would_be_shifted() -> None:
    layer = UpConvRelu(3, 2, kernel_size=3)
    image = random(1, 3, 4, 5)
    shifted = functional.conv_transpose2d(
        image, layer.weight, layer.bias, stride=2, padding=1, output_padding=1
    )
    expected = same_by_hand(image, layer)
    assert shifted.shape == expected.shape
    assert not torch.allclose(shifted.double(), expected, atol=0.1)
    assert torch.allclose(shifted[..., :-1, :-1].double(), expected[..., 1:, 1:], atol=1e-6)


def test_what_comes_from_below_comes_first() -> None:
    from_below, skip = torch.zeros(1, 2, 3, 3), torch.ones(1, 1, 3, 3)
    assert Concatenate()(from_below, skip)[0, :, 0, 0].tolist() == [0, 0, 1]


@pytest.mark.parametrize(("height", "width"), [(1, 1), (1, 9), (8, 13), (17, 33), (16, 8)])
def test_padding_repeats_the_border_and_is_taken_off_again(height: int, width: int) -> None:
    image = random(2, 3, height, width)
    padded = PadToMultiple(multiple=8)(image)
    assert [size % 8 for size in padded.shape[-2:]] == [0, 0]
    assert max(padded.shape[-2] - height, padded.shape[-1] - width) < 8
    assert torch.equal(CropLike()(padded, image), image)
    assert torch.equal(padded[..., 0, 0], image[..., 0, 0])
    assert torch.equal(padded[..., -1, -1], image[..., -1, -1])


def test_what_fits_is_left_as_it_is() -> None:
    image = random(1, 3, 16, 8)
    assert PadToMultiple(multiple=8)(image) is image
    assert CropLike()(image, random(1, 1, 16, 8)) is image
