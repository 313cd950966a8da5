"""`fit` inside a scope: the epochs and callbacks of Keras's own `fit`, around blocks of updates."""

import random
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from drivetrain.core.randomness import stream_key
from drivetrain.keras_fit.data import FitData, evaluation_iterator, open_data
from drivetrain.keras_fit.logs import logs_of
from drivetrain.keras_fit.rank_sessions import RankProcesses
from drivetrain.keras_fit.running_fit import RunningFit, open_fit
from drivetrain.keras_fit.settings import Layout

__all__ = ["FitArguments", "fit"]

# Where no callback looks at single steps, several run at once: long enough to hide the host's work between
# executions, short enough for a progress bar.
_EXECUTION_S = 0.1
_LARGEST_SEED = 2**31 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class FitArguments:
    """The arguments of Keras's `fit`, with its defaults."""

    x: Any = None
    y: Any = None
    batch_size: int | None = None
    epochs: int = 1
    verbose: Any = "auto"
    callbacks: Any = None
    validation_split: float = 0.0
    validation_data: Any = None
    shuffle: bool = True
    class_weight: Any = None
    sample_weight: Any = None
    initial_epoch: int = 0
    steps_per_epoch: int | None = None
    validation_steps: int | None = None
    validation_batch_size: int | None = None
    validation_freq: Any = 1


def fit(
    model: Any,
    given: FitArguments,
    *,
    layout: Layout,
    processes: RankProcesses,
    device: str,
    seed: int | None,
    steps_per_execution: int,
) -> Any:
    """Trains a compiled model and returns its History."""
    from keras.src import callbacks as keras_callbacks

    model._assert_compile_called("fit")
    given, validation = _with_validation(_with_fewest_epochs(given))
    data = open_data(
        x=given.x,
        y=given.y,
        sample_weight=given.sample_weight,
        class_weight=given.class_weight,
        batch_size=given.batch_size,
        steps_per_epoch=given.steps_per_epoch,
        shuffle=given.shuffle,
    )
    model._symbolic_build(iterator=data.iterator)
    data.iterator.reset()
    first_epoch = model._initial_epoch or given.initial_epoch
    run_seed = _seed_of(seed, model, first_epoch=first_epoch, steps=data.steps)
    running = open_fit(
        model,
        data,
        layout=layout,
        processes=processes,
        device=device,
        seed=run_seed,
        update=first_epoch * (data.steps or 0),
    )
    callbacks = given.callbacks
    if not isinstance(callbacks, keras_callbacks.CallbackList):
        callbacks = keras_callbacks.CallbackList(
            callbacks,
            add_history=True,
            add_progbar=given.verbose != 0,
            verbose=given.verbose,
            epochs=given.epochs,
            steps=data.steps,
            model=model,
        )
    epochs = _Epochs(
        model=model,
        data=data,
        running=running,
        callbacks=callbacks,
        given=given,
        validation=validation,
        seed=run_seed,
        steps_per_execution=steps_per_execution,
    )
    try:
        if given.verbose and layout != Layout():
            _say(layout.in_words(data.batch))
        logs = epochs.run()
    finally:
        running.session.close()
        model._eval_epoch_iterator = None
    if given.epochs > 0:
        model.optimizer.finalize_variable_values(model.trainable_weights)
    callbacks.on_train_end(logs=logs)
    return model.history


@dataclass(slots=True, kw_only=True)
class _Epochs:
    """The epochs of a `fit`."""

    model: Any
    data: FitData
    running: RunningFit
    callbacks: Any
    given: FitArguments
    validation: tuple[Any, Any, Any] | None
    seed: int
    steps_per_execution: int
    _at_once: int = 1

    def run(self) -> dict[str, Any]:
        """All epochs; the logs of the last one."""
        model, callbacks = self.model, self.callbacks
        model.stop_training = False
        model._eval_epoch_iterator = None
        logs: dict[str, Any] = {}
        callbacks.on_train_begin()
        # A callback may have found an epoch to continue from.
        for epoch in range(model._initial_epoch or self.given.initial_epoch, self.given.epochs):
            model.reset_metrics()
            callbacks.on_epoch_begin(epoch)
            self.running.take()
            self._run_epoch(epoch)
            self.running.give()
            logs = {**logs_of(model), **self._validated(epoch)}
            callbacks.on_epoch_end(epoch, logs)
            self.running.take()
            if model.stop_training:
                break
        self.running.give()
        return logs

    def _run_epoch(self, epoch: int) -> None:
        step, has_hooks = 0, _has_batch_hooks(self.callbacks)
        coming = self.data.batches(epoch, seed=self.seed)
        while not self.model.stop_training:
            batches = list(_taken(coming, self._length(has_hooks=has_hooks)))
            if not batches:
                break
            self.callbacks.on_train_batch_begin(step)
            if has_hooks:
                self.running.take()
            started = time.perf_counter()
            self.running.run(batches)
            self._learn_length(len(batches), seconds=time.perf_counter() - started)
            step += len(batches)
            if has_hooks:
                self.running.give()
            self.callbacks.on_train_batch_end(step - 1, logs_of(self.model))

    def _length(self, *, has_hooks: bool) -> int:
        """How many steps the next execution has."""
        if self.steps_per_execution > 1 or has_hooks:
            return self.steps_per_execution
        return self._at_once

    def _learn_length(self, steps: int, *, seconds: float) -> None:
        self._at_once = max(1, min(2 * steps, int(steps * _EXECUTION_S / max(seconds, 1e-9))))

    def _validated(self, epoch: int) -> dict[str, Any]:
        if self.validation is None or not self.model._should_eval(epoch, self.given.validation_freq):
            return {}
        x, y, weights = self.validation
        batch_size = self.given.validation_batch_size or self.given.batch_size
        if self.model._eval_epoch_iterator is None:
            # One for all epochs, as Keras has it: a generator goes on where the last validation ended.
            self.model._eval_epoch_iterator = evaluation_iterator(
                x=x,
                y=y,
                sample_weight=weights,
                batch_size=batch_size,
                steps=self.given.validation_steps,
            )
        logs = self.model.evaluate(
            x=x,
            y=y,
            sample_weight=weights,
            batch_size=batch_size,
            steps=self.given.validation_steps,
            callbacks=self.callbacks,
            return_dict=True,
            _use_cached_eval_dataset=True,
        )
        return {f"val_{name}": value for name, value in logs.items()}


def _taken(coming: Iterator[Any], count: int) -> Iterator[Any]:
    for _ in range(count):
        try:
            yield next(coming)
        except StopIteration:
            return


def _with_fewest_epochs(given: FitArguments) -> FitArguments:
    """The arguments with at most as many epochs as Keras is set to, for a trial."""
    import keras

    most = getattr(keras.config, "max_epochs", lambda: None)()
    if not most or most >= given.epochs:
        return given
    warnings.warn(f"Limiting epochs to {most}", stacklevel=2)
    return replace(given, epochs=most)


def _with_validation(given: FitArguments) -> tuple[FitArguments, tuple[Any, Any, Any] | None]:
    """The arguments without the samples that validation_split holds out, and the validation data."""
    from keras.src.trainers.data_adapters import array_slicing
    from keras.src.trainers.data_adapters.data_adapter_utils import unpack_x_y_sample_weight

    validation = given.validation_data
    if given.validation_split and validation is None:
        (x, y, weights), validation = array_slicing.train_validation_split(
            (given.x, given.y, given.sample_weight), validation_split=given.validation_split
        )
        given = replace(given, x=x, y=y, sample_weight=weights)
    return given, None if validation is None else unpack_x_y_sample_weight(validation)


def _seed_of(seed: int | None, model: Any, *, first_epoch: int, steps: int | None) -> int:
    """The seed of this `fit`: another one for each, but the same for one that goes on from an epoch."""
    from keras.src.utils.rng_utils import get_random_seed

    base = seed if seed is not None else get_random_seed()
    if base is None:
        return random.SystemRandom().randrange(_LARGEST_SEED)
    begun = int(model.optimizer._iterations.value) - first_epoch * (steps or 0)
    return stream_key(int(base), "fit", begun) % _LARGEST_SEED


def _has_batch_hooks(callbacks: Any) -> bool:
    """Whether a callback looks at single steps, besides Keras's progress bar."""
    return any(map(_looks_at_batches, callbacks.callbacks))


def _looks_at_batches(callback: Any) -> bool:
    import keras

    if type(callback).__module__.endswith("progbar_logger"):
        return False
    if type(callback) is keras.callbacks.ModelCheckpoint and callback.save_freq == "epoch":
        return False
    hooks = ("on_train_batch_begin", "on_train_batch_end", "on_batch_begin", "on_batch_end")
    return any(getattr(type(callback), hook) is not getattr(keras.callbacks.Callback, hook) for hook in hooks)


def _say(line: str) -> None:
    from keras.src.utils import io_utils

    io_utils.print_msg(line)
