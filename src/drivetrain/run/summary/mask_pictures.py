"""Draws predicted masks over validation images of a segmentation run."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from drivetrain.catalogue.models import output_margin_of
from drivetrain.core.files import write_atomically
from drivetrain.data.masks.masked_images import MaskedImages
from drivetrain.data.source import DataSpec, DataSplits
from drivetrain.data.training_tiles import masked_of
from drivetrain.inference.model.whole_images import image_logits, whole_image_forward
from drivetrain.passes.forward import in_precision
from drivetrain.pictures.overlays import overlay_sheet
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.schema import Recipe
from drivetrain.run.summary.mask_examples import PredictedMask, write_overlays
from drivetrain.store.directory import RunDirectory
from drivetrain.tasks.segmentation_evaluation import SegmentationEvaluation, foreground_dice
from drivetrain.tasks.task import Evaluation

__all__ = ["draw_mask_predictions"]

# Images that are predicted to find the worst ones if no validation has scored them: few, as each takes time.
_CANDIDATES = 24
_WORST, _TYPICAL, _BEST = 3, 3, 2
_PANEL_SIDE = 320
_SCORE = "foreground_hard_dice"
_SHOWN_SCORES = (_SCORE, "hard_dice", "iou", "pixel_accuracy", "loss")

Classes = NDArray[np.uint8]


def draw_mask_predictions(
    directory: RunDirectory,
    *,
    recipe: Recipe,
    program: TrainingProgram,
    data: DataSplits,
    spec: DataSpec,
    evaluation: Evaluation | None,
) -> None:
    """Draws predictions/validation.png: the worst validation images, then some typical (median) ones.

    These and the best ones are written to examples/. They are chosen by foreground Dice, from all images if
    `evaluation` scored them, else from a few.
    """
    if data.validation is None:
        return
    masked = masked_of(data.validation)
    predict = _predictor(recipe, program, spec)
    scores = _measured_scores(evaluation, count=len(masked)) or _scores_of_some(masked, predict, spec)
    by_score = sorted(scores, key=lambda index: scores[index])
    worst, others = by_score[:_WORST], by_score[_WORST:]
    first = max(0, (len(others) - _TYPICAL) // 2)
    shown = [*worst, *others[first : first + _TYPICAL]]
    best = [index for index in reversed(by_score) if index not in shown][:_BEST]
    predicted = [_predicted(masked, index, predict) for index in (*shown, *best)]
    on_sheet = predicted[: len(shown)]
    sheet = overlay_sheet(
        [each.image for each in on_sheet],
        [each.truth for each in on_sheet],
        [each.classes for each in on_sheet],
        names=[Path(each.name).name for each in on_sheet],
        class_names=spec.class_names,
        title=_title(len(shown), looked_at=len(scores), there=len(masked)),
        sides=(_PANEL_SIDE, _PANEL_SIDE),
    )
    directory.predictions.mkdir(exist_ok=True)
    write_atomically(directory.predictions / "validation.png", sheet)
    rows = _rows(evaluation, count=len(masked))
    measured = [rows.get(index) or {_SCORE: scores[index]} for index in (*shown, *best)]
    examples = sorted(zip(predicted, measured, strict=True), key=lambda each: _score_of(each[1]))
    write_overlays(directory, examples, class_names=spec.class_names)


def _predicted(masked: MaskedImages, index: int, predict: Callable[[NDArray[Any]], Classes]) -> PredictedMask:
    image, mask = masked.whole(index)
    return PredictedMask(name=masked.name(index), image=image, truth=mask[..., 0], classes=predict(image))


def _rows(evaluation: Evaluation | None, *, count: int) -> dict[int, dict[str, float]]:
    """The scores of every image without those of single classes; empty if not all were validated."""
    if not isinstance(evaluation, SegmentationEvaluation) or evaluation.samples != count:
        return {}
    return {
        index: {name: value for name, value in row.items() if name in _SHOWN_SCORES and value is not None}
        for index, row in enumerate(evaluation.per_image())
    }


def _score_of(row: Mapping[str, float]) -> float:
    """What examples are ordered by; an image without foreground, where none was predicted, is right."""
    return row.get(_SCORE, 1.0)


def _predictor(recipe: Recipe, program: TrainingProgram, spec: DataSpec) -> Callable[[NDArray[Any]], Classes]:
    """Returns a function that predicts the most likely class of each pixel of an image."""
    program.model.eval()
    forward = whole_image_forward(
        recipe,
        spec,
        in_precision(program.model, program.precision),
        margin=output_margin_of(recipe.model),
        flips=recipe.flip_averaging,
    )

    def predict(image: NDArray[Any]) -> Classes:
        logits = image_logits(forward, image, spec=spec, device=program.device.torch_device)
        classes: Classes = logits.argmax(0).to(torch.uint8).cpu().numpy()
        return classes

    return predict


def _measured_scores(evaluation: Evaluation | None, *, count: int) -> dict[int, float]:
    """The score of every image; empty if the last validation did not score all of them."""
    if not isinstance(evaluation, SegmentationEvaluation) or evaluation.samples != count:
        return {}
    return dict(enumerate(evaluation.foreground_scores()))


def _scores_of_some(
    masked: MaskedImages, predict: Callable[[NDArray[Any]], Classes], spec: DataSpec
) -> dict[int, float]:
    """Scores of up to `_CANDIDATES` images, evenly spaced over the set."""
    count = min(_CANDIDATES, len(masked))
    scores: dict[int, float] = {}
    for index in (len(masked) * place // count for place in range(count)):
        image, mask = masked.whole(index)
        score = foreground_dice(mask[..., 0], predict(image), class_names=spec.class_names)
        scores[index] = 1.0 if score is None else score
    return scores


def _title(shown: int, *, looked_at: int, there: int) -> str:
    if shown == there:
        return f"All {there} validation images, worst first (by hard Dice of the foreground)"
    of = f"{there} validation images" if looked_at == there else f"{looked_at} of {there} validation images"
    return f"The worst {_WORST} of {of} (by hard Dice of the foreground), then typical ones"
