"""What happens to the stored samples of a batch, on host or device, as one function."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from drivetrain.data.augment.chain import AnyAugmentation
from drivetrain.data.preprocess import Preparation
from drivetrain.devices.compilation import Compilable

__all__ = ["BatchPreparation", "PrepareBatch", "compilable_preparation"]

PrepareBatch = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], tuple[Tensor, Tensor]]


@dataclass(frozen=True, slots=True)
class BatchPreparation:
    """Samples without draws are only preprocessed: those of a validation, and of a chain without chance."""

    preprocess: Preparation
    augmentation: AnyAugmentation | None

    def run(
        self, images: Tensor, labels: Tensor, draws: Tensor | None, mix: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        if self.augmentation is None or draws is None:
            return self.preprocess.both(images, labels)
        return self.augmentation.prepare(images, labels, preprocess=self.preprocess, draws=draws, mix=mix)


def compilable_preparation(
    preprocess: Preparation, augmentation: AnyAugmentation | None
) -> Compilable[[Tensor, Tensor, Tensor | None, Tensor | None], tuple[Tensor, Tensor]]:
    """From stored images, labels, what chance drew and the shares of a mixture to what model and loss see."""
    return Compilable(BatchPreparation(preprocess, augmentation).run, what="augmentation", whole=True)
