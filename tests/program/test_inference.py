"""Inference computes what the model computes."""

import torch
from torch import nn

from drivetrain.models.create import create_model
from drivetrain.program.forward import Precision
from drivetrain.program.inference import build_inference

FLOAT32 = Precision(compute_dtype=torch.float32, device_type="cpu")


def test_folded_or_not_the_logits_are_the_models() -> None:
    model = create_model("cifar_resnet8", channels=1, image_size=8, num_classes=3)
    images = torch.rand(2, 1, 8, 8)
    with torch.inference_mode():
        expected = model.eval()(images)
        for folds in (True, False):
            found = build_inference(model, precision=FLOAT32, folds=folds)(images)
            assert torch.allclose(found, expected, rtol=1e-4, atol=1e-6)


def test_a_later_change_of_a_folded_model_does_not_count() -> None:
    model = create_model("cifar_resnet8", channels=1, image_size=8, num_classes=3)
    forward = build_inference(model, precision=FLOAT32)
    images = torch.rand(1, 1, 8, 8)
    with torch.inference_mode():
        before = forward(images)
        for parameter in model.parameters():
            nn.init.zeros_(parameter)
        assert torch.equal(forward(images), before)
