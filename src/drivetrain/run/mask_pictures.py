"""What a run sees in its validation images, as masks."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from drivetrain.data.masked_images import MaskedImages
from drivetrain.data.source import DataSpec, DataSplits
from drivetrain.data.tile_source import masked_of
from drivetrain.models.registry import output_margin_of
from drivetrain.program.forward import in_precision
from drivetrain.program.training import TrainingProgram
from drivetrain.program.whole_images import image_logits, whole_image_forward
from drivetrain.recipe.schema import Recipe
from drivetrain.run.directory import RunDirectory
from drivetrain.run.files import write_atomically
from drivetrain.run.mask_paint import hard_dice
from drivetrain.run.overlays import overlay_sheet

__all__ = ["draw_mask_predictions"]

_CANDIDATES = 24
_WORST, _TYPICAL = 3, 3
_PANEL_SIDE = 320


@dataclass(frozen=True, slots=True, kw_only=True)
class _Seen:
    """A validation image and what the model makes of it."""

    index: int
    prediction: NDArray[np.uint8]
    dice: float


def draw_mask_predictions(
    directory: RunDirectory, *, recipe: Recipe, program: TrainingProgram, data: DataSplits, spec: DataSpec
) -> None:
    """predictions/validation.png: the validation images that went worst, then some that went as most did."""
    if data.validation is None:
        return
    masked = masked_of(data.validation)
    by_dice = sorted(
        _looked_at(masked, recipe=recipe, program=program, spec=spec), key=lambda seen: seen.dice
    )
    worst, others = by_dice[:_WORST], by_dice[_WORST:]
    first = max(0, (len(others) - _TYPICAL) // 2)
    shown = [*worst, *others[first : first + _TYPICAL]]
    pairs = [masked.whole(seen.index) for seen in shown]
    sheet = overlay_sheet(
        [image for image, _ in pairs],
        [mask[..., 0] for _, mask in pairs],
        [seen.prediction for seen in shown],
        names=[Path(masked.name(seen.index)).name for seen in shown],
        class_names=spec.class_names,
        title=_title(len(shown), looked_at=len(by_dice), there=len(masked)),
        sides=(_PANEL_SIDE, _PANEL_SIDE),
    )
    directory.predictions.mkdir(exist_ok=True)
    write_atomically(directory.predictions / "validation.png", sheet)


def _looked_at(
    masked: MaskedImages, *, recipe: Recipe, program: TrainingProgram, spec: DataSpec
) -> Iterator[_Seen]:
    """All validation images, or as many of them, evenly spread, as do not take long."""
    program.model.eval()
    forward = whole_image_forward(
        recipe,
        spec,
        in_precision(program.model, program.precision),
        margin=output_margin_of(recipe.model),
        flips=recipe.flip_averaging,
    )
    count = min(_CANDIDATES, len(masked))
    for index in (len(masked) * place // count for place in range(count)):
        image, mask = masked.whole(index)
        logits = image_logits(forward, image, spec=spec, device=program.device.torch_device)
        prediction: NDArray[Any] = logits.argmax(0).to(torch.uint8).cpu().numpy()
        dice = hard_dice(mask[..., 0], prediction, num_classes=spec.num_classes)
        yield _Seen(index=index, prediction=prediction, dice=dice)


def _title(shown: int, *, looked_at: int, there: int) -> str:
    if shown == there:
        return f"The validation images ({there}), the worst first"
    of = f"{there} validation images" if looked_at == there else f"{looked_at} of {there} validation images"
    return f"The worst {_WORST} of {of}, then some typical ones"
