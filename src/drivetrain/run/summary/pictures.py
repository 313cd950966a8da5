"""Draws the figures of a run: curves.png, and predictions on validation images of a classifier."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from drivetrain.catalogue.metrics import MAIN_METRICS, class_scores, shown_metric
from drivetrain.data.preprocess import Preparation
from drivetrain.data.sample_names import image_file
from drivetrain.data.source import DataSplits
from drivetrain.passes.forward import in_precision
from drivetrain.pictures.pyplot import load_pyplot
from drivetrain.program.training_program import TrainingProgram
from drivetrain.run.summary.class_examples import write_class_examples
from drivetrain.store.best import Best
from drivetrain.store.directory import RunDirectory
from drivetrain.store.metrics_file import read_metrics
from drivetrain.store.update_history import load_history
from drivetrain.tasks.classification_measure import ClassificationEvaluation, Guesses
from drivetrain.tasks.task import Evaluation

_GRID_COLUMNS, _GRID_ROWS = 8, 4
_LONGEST_NAME = 26
# Validation images that are predicted to find mistakes if the last validation kept no predictions.
_CANDIDATES = 512
# Width of the moving average in curves.png, as a share of all updates.
_SMOOTHING_SHARE = 0.02
# Without blue, which is the training curve.
_CLASS_COLOURS = ("tab:orange", "tab:green", "tab:red", "tab:purple", "tab:brown", "tab:pink", "tab:olive")


def draw_curves(directory: RunDirectory) -> None:
    """Draws curves.png: loss and score over the updates, by class in segmentation."""
    plt = load_pyplot()
    history = load_history(directory.updates)
    entries = read_metrics(directory.metrics)
    validations = [entry for entry in entries if entry["event"] == "validation"]
    panels = ["loss", *(name for name in MAIN_METRICS.values() if name in history)]
    panels += ["iou"] if any("iou" in entry for entry in validations) else []
    figure, axes = plt.subplots(1, len(panels), figsize=(5.5 * len(panels), 4.4), layout="constrained")
    for axis, name in zip(axes, panels, strict=True):
        _draw_panel(axis, name, history.get(name), validations)
    figure.suptitle(_title(directory, entries))
    figure.savefig(directory.curves, dpi=120)
    plt.close(figure)


def _title(directory: RunDirectory, entries: Sequence[dict[str, Any]]) -> str:
    found = [entry["best"] for entry in entries if entry["event"] == "summary" and "best" in entry]
    best = f"\nbest: {Best.from_json(found[-1]).sentence()}" if found else ""
    return f"{directory.path.name}{best}"


def _draw_panel(
    axis: Any, name: str, history: NDArray[np.float64] | None, validations: Sequence[dict[str, Any]]
) -> None:
    """Draws one panel: training at every update, validations, and those of each class if there are any."""
    is_mean = shown_metric(name) != name
    mean = " (mean over classes)" if is_mean else ""
    if history is not None:
        _draw_curve(axis, history, mean=mean)
    curves = _class_curves(name, validations)
    for (label, line), colour in zip(curves.items(), _CLASS_COLOURS, strict=False):
        axis.plot(*zip(*line, strict=True), ".-", color=colour, linewidth=1, markersize=4, label=label)
    points = [(entry["update"], entry[name]) for entry in validations if entry.get(name) is not None]
    if points:
        style = {"color": "black", "linestyle": "--"} if is_mean else {"color": "tab:orange"}
        axis.plot(*zip(*points, strict=True), marker="o", markersize=4, label=f"validation{mean}", **style)
    axis.set_xlabel("update")
    axis.set_ylabel(shown_metric(name).removesuffix(mean))
    axis.grid(alpha=0.3)
    if name == "loss" and history is not None and np.nanmin(history) > 0:
        axis.set_yscale("log")
    axis.legend(fontsize=8)


def _class_curves(metric: str, validations: Sequence[dict[str, Any]]) -> dict[str, list[tuple[int, float]]]:
    """Validation curves of each class, foreground first; of many classes only those that end lowest."""
    words = shown_metric(metric).partition(" (")[0]
    curves: dict[str, list[tuple[int, float]]] = {}
    for entry in validations:
        scores = class_scores(entry).get(words)
        for name, value in {} if scores is None else scores.by_class.items():
            curves.setdefault(f"validation, {name}", []).append((entry["update"], value))
    if len(curves) <= len(_CLASS_COLOURS):
        return curves
    lowest = sorted(curves, key=lambda name: curves[name][-1][1])[: len(_CLASS_COLOURS)]
    return {f"{name} (among the lowest)": curves[name] for name in curves if name in lowest}


def _draw_curve(axis: Any, values: NDArray[np.float64], *, mean: str) -> None:
    updates = np.arange(1, len(values) + 1)
    axis.plot(updates, values, color="tab:blue", alpha=0.25, linewidth=0.8, label="each update")
    window = max(1, int(len(values) * _SMOOTHING_SHARE))
    smooth = np.convolve(values, np.ones(window) / window, mode="valid")
    axis.plot(updates[window - 1 :], smooth, color="tab:blue", label=f"training{mean}")


def draw_predictions(
    directory: RunDirectory,
    *,
    program: TrainingProgram,
    data: DataSplits,
    preprocess: Preparation,
    evaluation: Evaluation | None,
) -> None:
    """Draws predictions/validation.png, validation images with predicted classes, and writes examples/.

    Mistakes come first. They are chosen from all images if `evaluation` kept their predictions, else from
    `_CANDIDATES` of them.
    """
    if data.validation is None:
        return
    measured = evaluation.guesses if isinstance(evaluation, ClassificationEvaluation) else None
    there = len(data.validation)
    if measured is not None and len(measured.labels) == there:
        candidates, guesses = np.arange(there, dtype=np.int64), measured
    else:
        candidates = np.unique(np.linspace(0, there - 1, _CANDIDATES).astype(np.int64))
        guesses = _guesses(program, preprocess, *data.validation.fetch(candidates))
    chosen = choose_shown(guesses, count=_GRID_COLUMNS * _GRID_ROWS)
    directory.predictions.mkdir(exist_ok=True)
    _draw_grid(
        directory,
        data.validation.fetch(candidates[chosen])[0],
        guesses,
        chosen,
        files=[image_file(data.validation, int(index)) for index in candidates[chosen]],
        names=data.spec.class_names,
        title=_title_of_mistakes(guesses, there=there, shown=len(chosen)),
    )
    write_class_examples(directory, data=data, candidates=candidates, guesses=guesses)


def choose_shown(guesses: Guesses, *, count: int) -> NDArray[np.int64]:
    """Mistakes first, then correct ones; both go round the true classes, most confident first."""
    is_right = guesses.classes == guesses.labels
    order = np.argsort(-guesses.confidences, kind="stable")
    turns = np.empty(len(order), dtype=np.int64)
    for wanted in (False, True):
        for label in np.unique(guesses.labels):
            own = order[(guesses.labels[order] == label) & (is_right[order] == wanted)]
            turns[own] = np.arange(len(own))
    shown: NDArray[np.int64] = np.lexsort((guesses.labels, turns, is_right))[:count]
    return shown


def _title_of_mistakes(guesses: Guesses, *, there: int, shown: int) -> str:
    samples, wrong = len(guesses.labels), int((guesses.classes != guesses.labels).sum())
    of = f"{there}" if samples == there else f"{samples} of {there}"
    of += " validation sample" if there == 1 else " validation samples"
    if wrong == 0:
        return f"No mistakes on {of}; some correct ones of every class"
    if wrong == 1:
        return f"The only mistake on {of}{', then correct ones' if shown > 1 else ''}"
    if wrong > shown:
        return f"{shown} of {wrong} mistakes on {of}: the most confident of every true class"
    rest = "" if wrong == shown else ", then correct ones"
    return f"All {wrong} mistakes on {of}, by true class in turn{rest}"


def _guesses(
    program: TrainingProgram, preprocess: Preparation, images: NDArray[Any], labels: NDArray[Any]
) -> Guesses:
    probabilities = _predict(program, preprocess, images)
    return Guesses(
        labels=labels.astype(np.int32),
        classes=probabilities.argmax(1).astype(np.int32),
        confidences=probabilities.max(1),
        losses=-np.log(np.take_along_axis(probabilities, labels[:, None], axis=1)[:, 0].clip(1e-12)),
    )


@torch.inference_mode()
def _predict(program: TrainingProgram, preprocess: Preparation, images: NDArray[Any]) -> NDArray[np.float32]:
    program.model.eval()
    device = program.device.torch_device
    batches = torch.split(torch.from_numpy(np.ascontiguousarray(images)).permute(0, 3, 1, 2), 64)
    forward = in_precision(program.model, program.precision)
    logits = torch.cat([forward(preprocess(batch.to(device))) for batch in batches])
    probabilities: NDArray[np.float32] = program.task.probabilities(logits).cpu().numpy()
    return probabilities


def _draw_grid(
    directory: RunDirectory,
    images: NDArray[Any],
    guesses: Guesses,
    chosen: NDArray[np.int64],
    *,
    files: Sequence[str | None],
    names: tuple[str, ...],
    title: str,
) -> None:
    plt = load_pyplot()
    rows = -(-len(images) // _GRID_COLUMNS)
    has_names = any(file is not None for file in files)
    size = (_GRID_COLUMNS * 1.5, rows * (2.0 if has_names else 1.8) + 0.4)
    figure, axes = plt.subplots(rows, _GRID_COLUMNS, figsize=size, layout="constrained", squeeze=False)
    if has_names:
        figure.get_layout_engine().set(h_pad=0.1)
    for axis in axes.flat:
        axis.axis("off")
    for image, index, file, axis in zip(images, chosen, files, axes.flat, strict=False):
        label, guess = guesses.labels[index], guesses.classes[index]
        axis.imshow(_displayable(image), cmap="gray")
        text = f"{names[guess]} ({guesses.confidences[index]:.0%})"
        axis.set_title(
            text if guess == label else f"{text}\ntrue: {names[label]}",
            fontsize=9,
            color="green" if guess == label else "red",
        )
        if file is not None:
            style = {"fontsize": 6, "color": "dimgray", "ha": "center", "va": "top"}
            axis.text(0.5, -0.03, _end_of(file), transform=axis.transAxes, **style)
    figure.suptitle(title, fontsize=11)
    figure.savefig(directory.predictions / "validation.png", dpi=110)
    plt.close(figure)


def _end_of(file: str) -> str:
    """The name of a file, its end if it is long: numbers stand there."""
    name = Path(file).name
    return name if len(name) <= _LONGEST_NAME else f"...{name[3 - _LONGEST_NAME :]}"


def _displayable(image: NDArray[Any]) -> NDArray[Any]:
    if image.shape[2] == 3 and image.dtype == np.uint8:
        return image
    if image.shape[2] == 3:
        low, high = image.min(), image.max()
        scaled: NDArray[Any] = (image - low) / max(high - low, 1e-12)
        return scaled
    return image[:, :, 0]
