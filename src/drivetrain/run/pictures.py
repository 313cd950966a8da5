"""Pictures of a run: its curves, and what it sees in the validation images."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from drivetrain.data.preprocess import Preparation
from drivetrain.data.source import DataSplits
from drivetrain.program.forward import in_precision
from drivetrain.program.training import TrainingProgram
from drivetrain.run.directory import RunDirectory
from drivetrain.run.history import load_history
from drivetrain.run.metrics import MAIN_METRICS, read_metrics
from drivetrain.run.pyplot import load_pyplot

_GRID_COLUMNS, _GRID_ROWS = 8, 4
_CANDIDATES = 512
_SMOOTHING_SHARE = 0.02


def draw_curves(directory: RunDirectory) -> None:
    """curves.png: loss and score over the updates."""
    plt = load_pyplot()
    history = load_history(directory.updates)
    validations = [entry for entry in read_metrics(directory.metrics) if entry["event"] == "validation"]
    figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
    score = next(name for name in MAIN_METRICS if name in history)
    for axis, name in zip(axes, ("loss", score), strict=True):
        _draw_curve(axis, history[name])
        points = [(entry["update"], entry[name]) for entry in validations if entry.get(name) is not None]
        if points:
            axis.plot(*zip(*points, strict=True), "o-", color="tab:orange", markersize=4, label="validation")
        axis.set_xlabel("update")
        axis.set_ylabel(name)
        axis.grid(alpha=0.3)
        if name == "loss" and np.nanmin(history[name]) > 0:
            axis.set_yscale("log")
        axis.legend()
    figure.suptitle(directory.path.name)
    figure.savefig(directory.curves, dpi=120)
    plt.close(figure)


def _draw_curve(axis: Any, values: NDArray[np.float64]) -> None:
    updates = np.arange(1, len(values) + 1)
    axis.plot(updates, values, color="tab:blue", alpha=0.25, linewidth=0.8, label="each update")
    window = max(1, int(len(values) * _SMOOTHING_SHARE))
    smooth = np.convolve(values, np.ones(window) / window, mode="valid")
    axis.plot(updates[window - 1 :], smooth, color="tab:blue", label="training")


def draw_predictions(
    directory: RunDirectory, *, program: TrainingProgram, data: DataSplits, preprocess: Preparation
) -> None:
    """predictions/validation.png: validation images with what the model says, its mistakes first."""
    if data.validation is None:
        return
    indices = np.arange(min(_CANDIDATES, len(data.validation)), dtype=np.int64)
    images, labels = data.validation.fetch(indices)
    probabilities = _predict(program, preprocess, images)
    guesses = probabilities.argmax(1)
    first = np.argsort(guesses == labels, kind="stable")[: _GRID_COLUMNS * _GRID_ROWS]
    directory.predictions.mkdir(exist_ok=True)
    _draw_grid(
        directory, images[first], labels[first], guesses[first], probabilities[first], data.spec.class_names
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
    labels: NDArray[np.int64],
    guesses: NDArray[np.int64],
    probabilities: NDArray[np.float32],
    names: tuple[str, ...],
) -> None:
    plt = load_pyplot()
    rows = -(-len(images) // _GRID_COLUMNS)
    figure, axes = plt.subplots(
        rows, _GRID_COLUMNS, figsize=(_GRID_COLUMNS * 1.5, rows * 1.8), layout="constrained", squeeze=False
    )
    for axis in axes.flat:
        axis.axis("off")
    for i, axis in zip(range(len(images)), axes.flat, strict=False):
        right = guesses[i] == labels[i]
        axis.imshow(_displayable(images[i]), cmap="gray")
        text = f"says {names[guesses[i]]} ({probabilities[i, guesses[i]]:.0%})"
        axis.set_title(
            text if right else f"{text}\nbut is {names[labels[i]]}",
            fontsize=9,
            color="green" if right else "red",
        )
    figure.savefig(directory.predictions / "validation.png", dpi=110)
    plt.close(figure)


def _displayable(image: NDArray[Any]) -> NDArray[Any]:
    if image.shape[2] == 3 and image.dtype == np.uint8:
        return image
    if image.shape[2] == 3:
        low, high = image.min(), image.max()
        scaled: NDArray[Any] = (image - low) / max(high - low, 1e-12)
        return scaled
    return image[:, :, 0]
