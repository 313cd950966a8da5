"""What is exported does to images what the run does, whatever the data set's normalisation."""

import pytest
import torch
from torch import nn

from drivetrain.data.dense_preprocess import DensePreprocess
from drivetrain.data.preprocess import Preparation, Preprocess
from drivetrain.data.source import DataSpec, Normalisation, TaskName
from drivetrain.run.export_formats import write_format
from drivetrain.run.export_module import ExportModule
from drivetrain.tasks.classification import ClassificationTask
from drivetrain.tasks.segmentation import SegmentationTask


def _spec(
    normalisation: Normalisation, *, task: TaskName = "classification", tile: int | None = None
) -> DataSpec:
    return DataSpec(
        channels=3,
        height=12,
        width=10,
        num_classes=2,
        class_names=("a", "b"),
        image_dtype="uint8",
        normalisation=normalisation,
        task=task,
        tile=tile,
    )


class _Mean(nn.Module):
    """Two numbers of each image."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean((2, 3))[:, :2]


@pytest.mark.parametrize("normalisation", ["unit", "standardise", "imagenet"])
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


@pytest.mark.parametrize(
    ("preprocess", "size"),
    [
        (DensePreprocess(_spec("symmetric", task="segmentation"), image_size=6, margin=2), (12, 10)),
        (DensePreprocess(_spec("symmetric", task="segmentation")), (12, 10)),
        (DensePreprocess(_spec("unit", task="segmentation", tile=8), margin=1), (10, 8)),
    ],
    ids=["scaled", "whole", "tile with a margin"],
)
def test_maps_have_the_size_of_the_images(preprocess: Preparation, size: tuple[int, int]) -> None:
    margin = preprocess.height - preprocess.label_size[0] if preprocess.spec.tile is None else 2
    model = nn.Conv2d(3, 2, margin + 1)
    task = SegmentationTask(num_classes=2)
    for output, shape in (("probabilities", (2, 2, *size)), ("classes", (2, *size))):
        module = ExportModule(model, preprocess=preprocess, task=task, output=output)  # type: ignore[arg-type]
        assert module(module.example(2)).shape == shape
