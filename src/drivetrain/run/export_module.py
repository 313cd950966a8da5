"""A trained model with everything around it: stored images in, probabilities or classes out."""

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from drivetrain.data.preprocess import Preparation, channels_last_view
from drivetrain.tasks.task import Task

__all__ = ["ExportModule", "OutputKind"]

OutputKind = Literal["probabilities", "classes"]


class ExportModule(nn.Module):
    """Images (batch, height, width, channels) as files hold them, through preprocessing, model and task.

    A segmentation gives its output in the size of the images; of tiles that come with a margin, of the tile.
    """

    def __init__(
        self, model: nn.Module, *, preprocess: Preparation, task: Task, output: OutputKind = "probabilities"
    ) -> None:
        super().__init__()
        self.model = model
        self._preprocess, self._task, self._output = preprocess, task, output

    @property
    def input_shape(self) -> tuple[int, int, int]:
        """Height, width and channels of an image."""
        spec = self._preprocess.spec
        return spec.height, spec.width, spec.channels

    @property
    def input_dtype(self) -> torch.dtype:
        """What an image consists of."""
        return torch.uint8 if self._preprocess.spec.image_dtype == "uint8" else torch.float32

    def example(self, batch: int, *, seed: int = 0) -> Tensor:
        """Images of noise, of the shape and range that the model takes."""
        generator = torch.Generator().manual_seed(seed)
        shape = (batch, *self.input_shape)
        if self.input_dtype == torch.uint8:
            return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        return torch.rand(shape, generator=generator)

    def forward(self, images: Tensor) -> Tensor:
        logits = self.model(self._preprocess(channels_last_view(images)))
        size = self._size_of_images()
        if size is not None and tuple(logits.shape[2:]) != size:
            logits = interpolate(logits, size=size, mode="bilinear", align_corners=False, antialias=False)
        if self._output == "classes":
            classes: Tensor = logits.argmax(1)
            return classes
        return self._task.probabilities(logits)

    def _size_of_images(self) -> tuple[int, int] | None:
        """Where the output is a map of whole images, their height and width."""
        spec = self._preprocess.spec
        return (spec.height, spec.width) if spec.task == "segmentation" and spec.tile is None else None
