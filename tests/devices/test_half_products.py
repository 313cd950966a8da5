import subprocess
import sys

import pytest
import torch

from drivetrain.devices import half_products


def test_the_program_tells_of_each_type_in_turn() -> None:
    done = subprocess.run(
        [sys.executable, "-P", half_products.__file__, "float32", "int32", "float64"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "float32 works\nint32 refused\nfloat64 works\n"


def test_a_wrong_product_is_no_product(monkeypatch: pytest.MonkeyPatch) -> None:
    half_products.compute_products(torch.float32)
    monkeypatch.setattr(torch.nn.functional, "conv2d", lambda images, kernels: images)
    with pytest.raises(ArithmeticError, match="float32"):
        half_products.compute_products(torch.float32)
