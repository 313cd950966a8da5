"""Compiled 16-bit inference on a CUDA device: fused layers, and the logits of the plain model."""

import pytest
import torch
from torch import nn

from drivetrain.inference.model import optimised as inference
from drivetrain.inference.model.fold_batch_norm import fold_batch_norm
from drivetrain.inference.model.fused_layers import fuse_layers
from drivetrain.inference.model.optimised import build_inference
from drivetrain.models.create import create_model
from drivetrain.passes.forward import Precision

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")

BFLOAT16 = Precision(compute_dtype=torch.bfloat16, device_type="cuda")


@pytest.mark.parametrize(("name", "size"), [("unet", 20), ("resnet50", 64)])
def test_compiled_logits_are_those_of_the_model(
    name: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    fused: list[nn.Module] = []

    def fuse(model: nn.Module, *, dtype: torch.dtype) -> nn.Module:
        fused.append(fuse_layers(model, dtype=dtype))
        return fused[-1]

    monkeypatch.setattr(inference, "fuse_layers", fuse)
    torch.manual_seed(0)
    model = create_model(name, channels=1, image_size=size, num_classes=2).cuda().eval()
    side = size + 184 if name == "unet" else size
    images = torch.rand(2, 1, side, side, device="cuda")
    with torch.inference_mode():
        exact = model.double()(images.double()).float()
        model.float()
    folded = fold_batch_norm(model).model
    found = build_inference(folded, precision=BFLOAT16, compiles=True)(images).float()
    plain = build_inference(folded, precision=BFLOAT16)(images).float()
    kinds = {type(layer).__name__ for made in fused for layer in made.modules()}
    assert "_FusedConvRelu" in kinds
    error, usual_error = (found - exact).norm(), (plain - exact).norm()
    # As exact as the steps one by one in 16 bits, and far from the logits of other images.
    assert error < 1.5 * usual_error + 1e-6
    assert (found - found.flip(0)).norm() > 2 * error
