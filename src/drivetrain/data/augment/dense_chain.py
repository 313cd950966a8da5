"""An augmentation of images with masks: techniques on the model's canvas, on both together."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.data.augment.chain import Drawn
from drivetrain.data.augment.dense_technique import DenseTechnique
from drivetrain.data.dense_preprocess import DensePreprocess
from drivetrain.data.preprocess import Preparation


@dataclass(frozen=True, slots=True)
class DenseAugmentation:
    """The random changes of training samples; every one is a function of (seed, pass, sample)."""

    seed: int
    techniques: tuple[DenseTechnique, ...]

    @property
    def has_effect(self) -> bool:
        """Whether it changes samples at all."""
        return bool(self.techniques)

    @property
    def images_per_sample(self) -> int:
        """How many images are fetched for one sample."""
        return 1

    @property
    def numbers_per_sample(self) -> int:
        """How many numbers are kept for one sample: its index and what is drawn for it."""
        return 1 + sum(technique.columns for technique in self.techniques)

    def draw(
        self,
        indices: NDArray[np.int64],
        *,
        passes: NDArray[np.int64],
        usable: NDArray[np.int64],  # noqa: ARG002
    ) -> Drawn:
        """Chance for batches of samples (..., batch); no sample needs another one."""
        values = [
            technique.draw(self.seed, passes=passes, indices=indices).astype(np.float32)
            for technique in self.techniques
        ]
        none = np.empty((*indices.shape, 0), dtype=np.float32)
        return Drawn(
            indices=indices, passes=passes, values=np.concatenate([none, *values], axis=-1), mix=None
        )

    def prepare(
        self,
        images: Tensor,
        labels: Tensor,
        *,
        preprocess: Preparation,
        draws: Tensor,
        mix: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Stored images and labels as model and loss see them: on the canvas, changed, labels cropped."""
        assert isinstance(preprocess, DensePreprocess), "not a preparation of images with masks"
        assert mix is None, "images with masks are not mixed"
        images, labels = preprocess(images), preprocess.labels(labels)
        column = 0
        for technique in self.techniques:
            images, labels = technique.apply(images, labels, draws[:, column : column + technique.columns])
            column += technique.columns
        return images, preprocess.finished_labels(labels)
