"""Test computations in 16 bits; run as a program, it prints which types work.

It may die of an illegal instruction, which is its purpose: call it only in a process that may die.
"""

import sys
from contextlib import suppress

import torch
from torch.nn import functional

__all__ = ["WORKS", "compute_products", "leave_no_core_file"]

WORKS = "works"
REFUSED = "refused"

# The smallest product for which oneDNN chooses the matrix units that some virtual machines advertise and
# forbid; convolutions alone may not use them.
_SIZE = 64


@torch.no_grad()
def compute_products(kind: torch.dtype) -> None:
    """Raises if torch lacks a product in this type or computes it wrongly; a fork may not use autograd."""
    matrix = torch.ones(_SIZE, _SIZE, dtype=kind)
    products = [matrix @ matrix, functional.linear(matrix, matrix, matrix[0]) - 1]
    heads = matrix.view(1, 1, _SIZE, _SIZE)
    functional.scaled_dot_product_attention(heads, heads, heads)
    images = torch.ones(2, _SIZE, 8, 8, dtype=kind)
    kernels = torch.ones(_SIZE, _SIZE, 1, 1, dtype=kind)
    products += [functional.conv2d(images, kernels), functional.conv_transpose2d(images, kernels)]
    products.append(_convolution_backward(images, kernels))
    if not all((product == _SIZE).all() for product in products):
        raise ArithmeticError(f"a product of ones in {kind} is not {_SIZE}")


def _convolution_backward(images: torch.Tensor, kernels: torch.Tensor) -> torch.Tensor:
    """The gradient of the images; that of the kernels is computed as well."""
    gradients: tuple[torch.Tensor, ...] = torch.ops.aten.convolution_backward(
        images, images, kernels, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False]
    )
    return gradients[0]


def leave_no_core_file() -> None:
    """Switches off core dumps: the death of this process is expected."""
    with suppress(ImportError, ValueError, OSError):
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _report(names: list[str]) -> None:
    leave_no_core_file()
    for name in names:
        try:
            compute_products(getattr(torch, name))
            verdict = WORKS
        except (RuntimeError, ArithmeticError):
            verdict = REFUSED
        sys.stdout.write(f"{name} {verdict}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    _report(sys.argv[1:])
