"""Draws the images of an evaluation: each with its true mask, the prediction and the wrong pixels."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.core.files import write_atomically
from drivetrain.data.feeds.micro_batch import MicroBatch
from drivetrain.data.files.decode import IMAGE_SUFFIXES
from drivetrain.data.masks.masked_images import MaskedImages
from drivetrain.data.source import Source
from drivetrain.data.training_tiles import masked_of
from drivetrain.inference.model.evaluator import Evaluator
from drivetrain.inference.predict.mask_inputs import distinct_stems
from drivetrain.pictures.overlays import overlay_sheet

__all__ = ["painting"]

_ENDING = "-overlay.png"


def painting(
    evaluator: Evaluator, *, source: Source, folder: Path, class_names: tuple[str, ...]
) -> Evaluator:
    """The same evaluator, which also writes a picture of each image to `folder`."""
    painter = _Painter(evaluator, masked=masked_of(source), folder=folder, class_names=class_names)
    return replace(evaluator, feed=painter, forward=painter)


class _Painter:
    """Wraps the feed and the model of an evaluator: passes batches and logits on, and draws them."""

    def __init__(
        self, evaluator: Evaluator, *, masked: MaskedImages, folder: Path, class_names: tuple[str, ...]
    ) -> None:
        self._feed, self._forward = evaluator.feed, evaluator.forward
        self._masked, self._folder, self._class_names = masked, folder, class_names
        self._stems = distinct_stems([_stem(masked.name(index)) for index in range(len(masked))])
        self._batch: MicroBatch | None = None

    def __iter__(self) -> Iterator[MicroBatch]:
        self._folder.mkdir(parents=True, exist_ok=True)
        for older in self._folder.glob(f"*{_ENDING}"):
            older.unlink()
        for batch in self._feed:
            self._batch = batch
            yield batch

    def __call__(self, images: Tensor) -> Tensor:
        logits = self._forward(images)
        assert self._batch is not None, "images come as batches of this feed"
        predictions = logits.argmax(1).to(torch.uint8).cpu().numpy()
        truths = self._batch.labels[..., 0].cpu().numpy()
        for index, truth, prediction in zip(self._batch.slots.tolist(), truths, predictions, strict=True):
            self._paint(index, truth, prediction)
        return logits

    def _paint(self, index: int, truth: NDArray[Any], prediction: NDArray[Any]) -> None:
        sheet = overlay_sheet(
            [self._masked.whole(index)[0]],
            [truth],
            [prediction],
            names=[Path(self._masked.name(index)).name],
            class_names=self._class_names,
        )
        write_atomically(self._folder / f"{self._stems[index]}{_ENDING}", sheet)


def _stem(name: str) -> str:
    """The file name of an image without its suffix; in other names, special characters become dashes."""
    path = Path(name)
    is_file = path.suffix.lower() in IMAGE_SUFFIXES
    return path.stem if is_file else re.sub(r"[^\w.-]+", "-", path.name)
