"""The metrics of a Keras model, updated from the losses and outputs of a block of updates."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from drivetrain.keras_fit.data import Truth
from drivetrain.keras_fit.session import Trained

__all__ = ["logs_of", "needs_outputs", "update_metrics"]


def needs_outputs(model: Any) -> bool:
    """Whether the metrics of a model need its outputs."""
    return model._compile_metrics is not None or _has_own_metrics(model)


def update_metrics(model: Any, trained: Trained, truths: Sequence[Truth]) -> None:
    """Adds a block of updates to the metrics of a model, in the order of the updates."""
    sizes = [len(truth.inputs) for truth in truths]
    losses = trained.losses + trained.penalties
    model._loss_tracker.update_state(
        torch.from_numpy(losses.astype(np.float32)), sample_weight=torch.tensor(sizes, dtype=torch.float32)
    )
    if trained.outputs is None or trained.places is None:
        return
    outputs = _in_order(trained.outputs, trained.places)
    if _adds_up(model):
        labels = torch.cat([_tensor(truth.labels) for truth in truths])
        weights = _joined([truth.weights for truth in truths])
        model._compile_metrics.update_state(labels, outputs, weights)
        return
    for truth, output in zip(truths, torch.split(outputs, sizes), strict=True):
        model.compute_metrics(truth.inputs, truth.labels, output, truth.weights)


def logs_of(model: Any) -> dict[str, Any]:
    """The metrics so far, as Keras hands them to callbacks."""
    from keras.src.utils.python_utils import pythonify_logs

    return dict(pythonify_logs(model.get_metrics_result()))


def _in_order(outputs: Tensor, places: NDArray[np.int64]) -> Tensor:
    return outputs[torch.from_numpy(np.argsort(places, kind="stable"))]


def _has_own_metrics(model: Any) -> bool:
    import keras

    return bool(type(model).compute_metrics is not keras.Model.compute_metrics)


def _adds_up(model: Any) -> bool:
    """Whether all metrics are Keras's own, which take several batches at once."""
    if _has_own_metrics(model):
        return False
    metrics = model._compile_metrics.metrics
    return all(
        type(metric).__module__.startswith("keras.src.") and _is_of_keras(metric) for metric in metrics
    )


def _is_of_keras(metric: Any) -> bool:
    function = getattr(metric, "_fn", None)
    return function is None or str(getattr(function, "__module__", "")).startswith("keras.")


def _tensor(part: Any) -> Tensor:
    return part if isinstance(part, Tensor) else torch.as_tensor(part)


def _joined(parts: Sequence[Any]) -> Tensor | None:
    return None if parts[0] is None else torch.cat([_tensor(part) for part in parts])
