import pytest
import torch
from torch import nn

from drivetrain.models.zoo.layers import Add, Conv2dSame, GlobalMean, Shortcut, same_padding


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
