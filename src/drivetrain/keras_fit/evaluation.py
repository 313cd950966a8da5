"""`evaluate` and `predict` inside a scope: Keras's own loops, around the model's torch module."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor

from drivetrain.devices.device import choose_device
from drivetrain.keras_fit.data import parts_of
from drivetrain.keras_fit.label_fit import check_labels
from drivetrain.keras_fit.logs import logs_of
from drivetrain.keras_fit.lowering import LoweredModel, as_keras_output, as_torch_input, lower_for_fit

__all__ = ["Evaluator", "evaluate", "predict"]


@dataclass(slots=True)
class Evaluator:
    """Runs the torch module of a Keras model, with the weights that the model has now, on one device."""

    lowered: LoweredModel
    device: torch.device

    @classmethod
    def of(cls, model: Any, *, sample_shape: tuple[int, ...], device: str) -> "Evaluator":
        """The evaluator of a built model."""
        chosen = choose_device(device).torch_device
        lowered = lower_for_fit(model, sample_shape=sample_shape)
        lowered.module.to(chosen).eval()
        return cls(lowered, chosen)

    @torch.no_grad()
    def take_weights(self) -> None:
        """Takes the weights that Keras's variables have now."""
        state = self.lowered.module.state_dict()
        for link in self.lowered.links:
            state[link.name].copy_(link.to_torch())

    @torch.inference_mode()
    def __call__(self, inputs: Any) -> Tensor:
        """The outputs of a batch, as Keras's model returns them."""
        tensor = inputs if isinstance(inputs, Tensor) else torch.as_tensor(np.asarray(inputs))
        images = as_torch_input(tensor.to(self.device), channels_last=self.lowered.channels_last)
        return as_keras_output(self.lowered.module(images)).cpu()


MakeEvaluator = Callable[[tuple[int, ...]], Evaluator]


def evaluate(
    model: Any, iterator: Any, *, make: MakeEvaluator, callbacks: Any, steps_per_execution: int
) -> dict[str, Any]:
    """The logs of a model over the batches of Keras's iterator."""
    model._symbolic_build(iterator=iterator)
    iterator.reset()
    model.stop_evaluating = False
    callbacks.on_test_begin()
    model.reset_metrics()
    run, step = _Lazy(make), 0
    for batches in _executions(iterator, steps_per_execution):
        callbacks.on_test_batch_begin(step)
        for data in batches:
            _evaluate_batch(model, run, data)
        step += len(batches)
        callbacks.on_test_batch_end(step - 1, logs_of(model))
        if model.stop_evaluating:
            break
    logs = logs_of(model)
    callbacks.on_test_end(logs)
    return logs


def _evaluate_batch(model: Any, run: "_Lazy", data: Any) -> None:
    inputs, labels, weights = parts_of(data)
    with torch.no_grad():
        outputs = run(inputs)
        check_labels(model, torch.as_tensor(labels))
        loss = model._compute_loss(x=inputs, y=labels, y_pred=outputs, sample_weight=weights, training=False)
        model._loss_tracker.update_state(loss, sample_weight=len(inputs))
        if model._compile_metrics is not None:
            model.compute_metrics(inputs, labels, outputs, sample_weight=weights)


def predict(
    model: Any, iterator: Any, *, make: MakeEvaluator, callbacks: Any, steps_per_execution: int
) -> Any:
    """The outputs of a model over the batches of Keras's iterator, as one array."""
    model.stop_predicting = False
    callbacks.on_predict_begin()
    run, step, outputs = _Lazy(make), 0, []
    for batches in _executions(iterator, steps_per_execution):
        callbacks.on_predict_batch_begin(step)
        newest = [run(parts_of(data)[0]).numpy() for data in batches]
        outputs += newest
        step += len(batches)
        callbacks.on_predict_batch_end(step - 1, {"outputs": np.concatenate(newest)})
        if model.stop_predicting:
            break
    callbacks.on_predict_end()
    return np.concatenate(outputs)


class _Lazy:
    """Makes the evaluator for the first batch, whose shape it needs."""

    def __init__(self, make: MakeEvaluator) -> None:
        self._make = make
        self._evaluator: Evaluator | None = None

    def __call__(self, inputs: Any) -> Tensor:
        if self._evaluator is None:
            self._evaluator = self._make(tuple(inputs.shape[1:]))
            self._evaluator.take_weights()
        return self._evaluator(inputs)


def _executions(iterator: Any, steps: int) -> Iterator[Sequence[Any]]:
    coming = (data for _, _, (data,) in iterator)
    while batches := list(islice(coming, steps)):
        yield batches
