"""Inference computes what the model computes."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from drivetrain.inference.model.fold_batch_norm import fold_batch_norm
from drivetrain.inference.model.optimised import build_inference
from drivetrain.models.create import create_model
from drivetrain.passes.forward import Precision

FLOAT32 = Precision(compute_dtype=torch.float32, device_type="cpu")


def test_folded_or_not_the_logits_are_the_models() -> None:
    model = create_model("cifar_resnet8", channels=1, image_size=8, num_classes=3)
    images = torch.rand(2, 1, 8, 8)
    with torch.inference_mode():
        expected = model.eval()(images)
        for ready in (fold_batch_norm(model).model, model):
            found = build_inference(ready, precision=FLOAT32)(images)
            assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_later_change_of_a_folded_model_does_not_count() -> None:
    model = create_model("cifar_resnet8", channels=1, image_size=8, num_classes=3)
    forward = build_inference(fold_batch_norm(model).model, precision=FLOAT32)
    images = torch.rand(1, 1, 8, 8)
    with torch.inference_mode():
        before = forward(images)
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
        assert torch.equal(forward(images), before)


def test_what_is_compiled_sees_weights_as_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compiling asks the process's settings; a stand-in for it tells what they were at each call."""
    from torch._inductor import config

    seen: list[tuple[int, bool, bool]] = []

    def compile_(forward: Callable[[Tensor], Tensor], **_options: object) -> Callable[[Tensor], Tensor]:
        def run(images: Tensor) -> Tensor:
            seen.append((len(images), config.freezing, torch.is_grad_enabled()))
            return forward(images)

        return run

    monkeypatch.setattr(torch, "compile", compile_)
    model = create_model("cifar_resnet8", channels=1, image_size=8, num_classes=3)
    forward = build_inference(model, precision=FLOAT32, compiles=True)
    for batch in (2, 2, 1):
        forward(torch.rand(batch, 1, 8, 8))
    assert seen == [(2, True, False), (2, False, False), (1, True, False)]
    assert not config.freezing
