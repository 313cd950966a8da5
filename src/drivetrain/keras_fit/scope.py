"""`with drivetrain.keras.scope(...)`: Keras models inside it train on several devices."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

from drivetrain.core.errors import BadInputError
from drivetrain.keras_fit.data import evaluation_iterator
from drivetrain.keras_fit.evaluation import Evaluator, evaluate, predict
from drivetrain.keras_fit.fit import FitArguments, fit
from drivetrain.keras_fit.rank_sessions import RankProcesses
from drivetrain.keras_fit.settings import ScopeSettings, as_count, schedule_named
from drivetrain.keras_fit.stages import (
    layout_of,
    set_pipeline_stage_assignment,
    set_pipelining_options,
    set_stages,
)
from drivetrain.models.from_keras.package import import_keras

__all__ = ["scope"]

_STEPS = "_drivetrain_steps_per_execution"


@contextmanager
def scope(
    *,
    replicas: int | None = None,
    stages: int | None = None,
    steps_per_execution: int | None = None,
    gradient_accumulation: int | None = None,
    schedule: Any = None,
    devices: int | None = None,
    device: str = "auto",
    seed: int | None = None,
) -> Iterator[None]:
    """Inside, `fit` of Keras models trains on `replicas` x `stages` devices, `evaluate` and `predict` on one.

    `batch_size` stays the samples of a weight update: replicas and `gradient_accumulation` divide it among
    them. `devices` makes as many replicas as there are devices for the stages. `schedule` orders the passes
    of pipeline stages. `steps_per_execution` goes before that of `model.compile`.
    """
    settings = ScopeSettings(
        replicas=as_count("replicas", replicas),
        stages=as_count("stages", stages),
        devices=as_count("devices", devices),
        gradient_accumulation=as_count("gradient_accumulation", gradient_accumulation),
        schedule=schedule_named(schedule),
        steps_per_execution=as_count("steps_per_execution", steps_per_execution),
        device=device,
        seed=seed,
    )
    keras = import_keras()
    if "fit" in vars(keras.Model):
        raise BadInputError("A scope cannot be opened inside another one; leave the inner one out.")
    state = _Scope(settings=settings, processes=RankProcesses(device), keras=keras)
    methods = state.methods()
    for name, method in methods.items():
        setattr(keras.Model, name, method)
    try:
        yield
    finally:
        for name in methods:
            delattr(keras.Model, name)
        state.processes.close()


@dataclass(slots=True, kw_only=True)
class _Scope:
    """An open scope, and the methods that it gives to Keras's models."""

    settings: ScopeSettings
    processes: RankProcesses
    keras: Any
    _evaluators: WeakKeyDictionary[Any, tuple[tuple[int, ...], Evaluator]] = field(
        default_factory=WeakKeyDictionary
    )

    def methods(self) -> dict[str, Callable[..., Any]]:
        """The methods by name; a subclass of the user's that has its own keeps it."""
        own: dict[str, Callable[..., Any]] = {
            "compile": self._compile,
            "fit": self._fit,
            "evaluate": self._evaluate,
            "predict": self._predict,
            "set_stages": set_stages,
            "set_pipelining_options": set_pipelining_options,
            "set_pipeline_stage_assignment": set_pipeline_stage_assignment,
        }
        return {name: _as_method(function) for name, function in own.items()}

    def _original(self, model: Any, name: str) -> Callable[..., Any]:
        method: Callable[..., Any] = getattr(super(self.keras.Model, model), name)
        return method

    def _compile(self, model: Any, *args: Any, **kwargs: Any) -> None:
        """Keras's compile; steps per execution stay here, since Keras refuses them on torch."""
        original = self._original(model, "compile")
        bound = inspect.signature(original).bind(*args, **kwargs)
        steps = as_count("steps_per_execution", bound.arguments.pop("steps_per_execution", 1))
        original(*bound.args, **bound.kwargs)
        vars(model)[_STEPS] = steps

    def _steps(self, model: Any) -> int:
        compiled = vars(model).get(_STEPS, model.steps_per_execution)
        return int(self.settings.steps_per_execution or compiled)

    def _fit(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        bound = inspect.signature(self._original(model, "fit")).bind(*args, **kwargs)
        return fit(
            model,
            FitArguments(**bound.arguments),
            layout=layout_of(model, self.settings),
            processes=self.processes,
            device=self.settings.device,
            seed=self.settings.seed,
            steps_per_execution=self._steps(model),
        )

    def _evaluate(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        original = self._original(model, "evaluate")
        if type(model).test_step is not self.keras.Model.test_step or not _is_single(model):
            return original(*args, **kwargs)
        given = _bound(original, args, kwargs)
        model._assert_compile_called("evaluate")
        iterator = model._eval_epoch_iterator if given["is_cached"] else _iterator(given)
        logs = evaluate(
            model,
            iterator,
            make=lambda shape: self._evaluator(model, shape),
            callbacks=self._callbacks(model, given, iterator),
            steps_per_execution=self._steps(model),
        )
        return logs if given["return_dict"] else model._flatten_metrics_in_order(logs)

    def _predict(self, model: Any, *args: Any, **kwargs: Any) -> Any:
        original = self._original(model, "predict")
        if type(model).predict_step is not self.keras.Model.predict_step or not _is_single(model):
            return original(*args, **kwargs)
        given = _bound(original, args, kwargs)
        iterator = _iterator(given)
        return predict(
            model,
            iterator,
            make=lambda shape: self._evaluator(model, shape),
            callbacks=self._callbacks(model, given, iterator),
            steps_per_execution=self._steps(model),
        )

    def _callbacks(self, model: Any, given: dict[str, Any], iterator: Any) -> Any:
        kind = self.keras.callbacks.CallbackList
        if isinstance(given["callbacks"], kind):
            return given["callbacks"]
        return kind(
            given["callbacks"],
            add_progbar=given["verbose"] != 0,
            verbose=given["verbose"],
            epochs=1,
            steps=iterator.num_batches,
            model=model,
        )

    def _evaluator(self, model: Any, shape: tuple[int, ...]) -> Evaluator:
        known = self._evaluators.get(model)
        if known is None or known[0] != shape:
            known = (shape, Evaluator.of(model, sample_shape=shape, device=self.settings.device))
            self._evaluators[model] = known
        return known[1]


def _as_method(function: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function, which becomes a method of a class that holds it; a bound method would not."""

    def method(model: Any, *args: Any, **kwargs: Any) -> Any:
        return function(model, *args, **kwargs)

    method.__doc__ = function.__doc__
    return method


def _bound(original: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
    bound = inspect.signature(original).bind(*args, **kwargs)
    bound.apply_defaults()
    more = dict(bound.arguments.pop("kwargs", {}))
    # How Keras's own `fit` asks for the iterator that it keeps.
    is_cached = more.pop("_use_cached_eval_dataset", False)
    if more:
        raise ValueError(f"Arguments not recognized: {more}")
    return {**bound.arguments, "is_cached": is_cached}


def _iterator(given: dict[str, Any]) -> Any:
    return evaluation_iterator(
        x=given["x"],
        y=given.get("y"),
        sample_weight=given.get("sample_weight"),
        batch_size=given["batch_size"],
        steps=given["steps"],
    )


def _is_single(model: Any) -> bool:
    """Whether a model has one input and one output, as far as is known before it is built."""
    inputs, outputs = getattr(model, "inputs", None), getattr(model, "outputs", None)
    return all(part is None or len(part) == 1 for part in (inputs, outputs))
