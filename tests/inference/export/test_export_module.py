"""What is exported does to images what the run does, whatever the data set's normalisation."""

import pytest
import torch
from torch import nn

from drivetrain.data.preprocess import Preprocess
from drivetrain.data.source import DataSpec, Normalisation
from drivetrain.inference.export.export_formats import write_format
from drivetrain.inference.export.export_module import ExportModule
from drivetrain.tasks.classification import ClassificationTask


def _spec(normalisation: Normalisation) -> DataSpec:
    return DataSpec(
        channels=3,
        height=12,
        width=10,
        num_classes=2,
        class_names=("a", "b"),
        image_dtype="uint8",
        normalisation=normalisation,
        mean=(0.5, 0.4, 0.3),
        std=(0.25, 0.2, 0.1),
    )


class _Mean(nn.Module):
    """Two numbers of each image."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean((2, 3))[:, :2]


@pytest.mark.parametrize("normalisation", ["unit", "standardise", "imagenet", "symmetric", "per-channel"])
def test_every_normalisation_can_be_exported(
    normalisation: Normalisation, tmp_path_factory: pytest.TempPathFactory
) -> None:
    preprocess = Preprocess(_spec(normalisation), 16)
    module = ExportModule(_Mean(), preprocess=preprocess, task=ClassificationTask()).eval()
    runner = write_format(module, "pt2", tmp_path_factory.mktemp("out") / "model.pt2")
    images = module.example(4, seed=3)
    assert torch.allclose(runner(images), module(images), atol=1e-6)
    # The cache of constants must hold real ones after an export.
    assert torch.isfinite(preprocess(images.permute(0, 3, 1, 2))).all()
