"""The module that is exported: stored images in, probabilities or classes out."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from drivetrain.catalogue.input_kinds import InputKind
from drivetrain.data.preprocess import Preparation, channels_last_view, normalise_dense
from drivetrain.passes.forward import Forward
from drivetrain.tasks.task import Task

__all__ = ["ExportModule", "OutputKind"]

OutputKind = Literal["probabilities", "classes"]
_LAYOUTS: dict[InputKind, str] = {"image": "NHWC", "table": "NF", "signal": "NCL"}
Geometry = Callable[[Forward], Forward]


class ExportModule(nn.Module):
    """Runs images (batch, height, width, channels) through preprocessing, model and softmax or argmax.

    Rows of a table are (batch, features), signals (batch, channels, length), as the model takes them.
    A `geometry` makes a model of one size work on normalised images of any size, for example by tiles. With
    it, images may have any height and width, and the output of a segmentation has the same size.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        preprocess: Preparation,
        task: Task,
        output: OutputKind = "probabilities",
        geometry: Geometry | None = None,
    ) -> None:
        super().__init__()
        self.model = model
        self._preprocess, self._task, self._output = preprocess, task, output
        self._whole = None if geometry is None else geometry(model)

    @property
    def takes_any_size(self) -> bool:
        """Whether images may have any height and width."""
        return self._whole is not None

    @property
    def input_name(self) -> str:
        """What the files call their input."""
        return "images" if self._preprocess.spec.input_kind == "image" else "samples"

    @property
    def layout(self) -> str:
        """The dimensions of the input, one letter each."""
        return _LAYOUTS[self._preprocess.spec.input_kind]

    @property
    def input_shape(self) -> tuple[int, ...]:
        """Height, width and channels of a training image, or of a tile; else the shape of a sample."""
        spec = self._preprocess.spec
        if spec.input_kind != "image":
            return (spec.channels,) if spec.input_kind == "table" else (spec.channels, spec.width)
        if spec.tile is not None:
            return spec.tile, spec.tile, spec.channels
        return spec.height, spec.width, spec.channels

    @property
    def input_dtype(self) -> torch.dtype:
        """The dtype of the pixels."""
        return torch.uint8 if self._preprocess.spec.image_dtype == "uint8" else torch.float32

    def example(self, batch: int, *, seed: int = 0, size: tuple[int, int] | None = None) -> Tensor:
        """Noise images in the range that the model takes; `size` defaults to that of the training."""
        generator = torch.Generator().manual_seed(seed)
        shape = (batch, *self.input_shape)
        if size is not None:
            shape = (batch, *size, self.input_shape[-1])
        if self.input_dtype == torch.uint8:
            return torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
        return torch.rand(shape, generator=generator)

    def stored(self, images: Tensor) -> Tensor:
        """The input as feeds deliver samples: (batch, channels, height, width)."""
        kind = self._preprocess.spec.input_kind
        if kind == "image":
            return channels_last_view(images)
        return images[..., None, None] if kind == "table" else images[:, :, None]

    def forward(self, images: Tensor) -> Tensor:
        stored = self.stored(images)
        if self._whole is None:
            logits: Tensor = self.model(self._preprocess(stored))
        else:
            logits = self._whole(normalise_dense(stored, self._preprocess.spec))
        if self._output == "classes":
            classes: Tensor = logits.argmax(1)
            return classes
        return self._task.probabilities(logits)
