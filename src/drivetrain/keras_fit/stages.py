"""Pipeline stages and pipelining options that are set on a Keras model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean
from drivetrain.keras_fit.settings import Layout, ScopeSettings, as_count, schedule_named
from drivetrain.pipeline.cutting.marks import mark_of

__all__ = [
    "PipeliningOptions",
    "layout_of",
    "set_pipeline_stage_assignment",
    "set_pipelining_options",
    "set_stages",
]

# Where marks for stages are kept; see pipeline/cutting/marks.py. A layer of Keras is a module of torch.
_MARK = "_drivetrain_stage"
_OPTIONS = "_drivetrain_pipelining"


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeliningOptions:
    """What `set_pipelining_options` has set."""

    accumulation: int | None = None
    schedule: str | None = None


def set_stages(model: Any, stages: Mapping[Any, int]) -> None:
    """Assigns layers, or whole models inside the model, to stages; keys are names or layers."""
    layers = _layers(model)
    for key, index in stages.items():
        layer = layers.get(key) if isinstance(key, str) else key
        if layer is None:
            raise BadInputError(
                f"set_stages: the model {model.name} has no layer {key}.{did_you_mean(str(key), layers)} "
                f"Its layers: {', '.join(layers)}."
            )
        if not any(layer is known for known in layers.values()):
            raise BadInputError(
                f"set_stages: {getattr(layer, 'name', layer)} is not a layer of the model {model.name}; use "
                "one of model.layers."
            )
        _mark(layer, index)


def set_pipeline_stage_assignment(model: Any, pipeline_stage_assignment: Sequence[int]) -> None:
    """One stage for each layer of a Sequential model, in order."""
    layers = [layer for layer in model.layers if type(layer).__name__ != "InputLayer"]
    given = list(pipeline_stage_assignment)
    if not all(isinstance(index, int) for index in given):
        raise BadInputError(
            "set_pipeline_stage_assignment takes one stage number per layer of a Sequential model; for other "
            "models use `with drivetrain.keras.stage(0):` or model.set_stages({'layer name': 0})."
        )
    if len(given) != len(layers):
        raise BadInputError(
            f"set_pipeline_stage_assignment got {len(given)} stages, but the model {model.name} has "
            f"{len(layers)} layers; give one stage for each."
        )
    for layer, index in zip(layers, given, strict=True):
        _mark(layer, index)


def set_pipelining_options(
    model: Any,
    *,
    gradient_accumulation_steps_per_replica: int | None = None,
    pipeline_schedule: Any = None,
) -> None:
    """How many micro-batches of a batch each replica runs one after the other, and in which order."""
    options = PipeliningOptions(
        accumulation=as_count(
            "gradient_accumulation_steps_per_replica", gradient_accumulation_steps_per_replica
        ),
        schedule=schedule_named(pipeline_schedule, option="pipeline_schedule"),
    )
    vars(model)[_OPTIONS] = options


def layout_of(model: Any, settings: ScopeSettings) -> Layout:
    """The layout for a model: from the scope, from its marks and from its pipelining options."""
    options: PipeliningOptions = vars(model).get(_OPTIONS, PipeliningOptions())
    stages = _stage_count(model, settings.stages)
    default = Layout()
    return Layout(
        replicas=_replicas(settings, stages=stages),
        stages=stages,
        accumulation=_one_of("gradient_accumulation", settings.gradient_accumulation, options.accumulation)
        or default.accumulation,
        schedule=_one_of("schedule", settings.schedule, options.schedule) or default.schedule,
    )


def _one_of(name: str, asked: Any, of_model: Any) -> Any:
    if asked is not None and of_model is not None and asked != of_model:
        raise BadInputError(
            f"scope({name}={asked!r}) contradicts set_pipelining_options, which says {of_model!r}; leave one "
            "of them out."
        )
    return of_model if asked is None else asked


def _stage_count(model: Any, asked: int | None) -> int:
    marks = [mark for layer in model._flatten_layers() if (mark := mark_of(layer)) is not None]
    marked = max(marks, default=0) + 1
    if asked is None or not marks or asked == marked:
        return asked or marked
    raise BadInputError(
        f"scope(stages={asked}) does not match the model {model.name}, whose layers are marked for {marked} "
        f"stages; stages={marked} works, or leave it out."
    )


def _replicas(settings: ScopeSettings, *, stages: int) -> int:
    if settings.devices is None:
        return settings.replicas or 1
    if settings.devices % stages:
        below = settings.devices // stages * stages
        works = f"devices={below} or {below + stages}" if below else f"devices={stages}"
        raise BadInputError(
            f"scope(devices={settings.devices}) is not a multiple of the {stages} stages; {works} works."
        )
    replicas = settings.devices // stages
    if settings.replicas not in (None, replicas):
        raise BadInputError(
            f"scope(devices={settings.devices}) makes {replicas} replicas of {stages} stages, not "
            f"replicas={settings.replicas}; leave one of them out."
        )
    return replicas


def _layers(model: Any) -> dict[str, Any]:
    """The layers of a model and of the models inside it, by name; an outer one comes before an inner one."""
    found: dict[str, Any] = {}
    for layer in model._flatten_layers(include_self=False):
        found.setdefault(layer.name, layer)
    return found


def _mark(layer: Any, index: int) -> None:
    if isinstance(index, bool) or not isinstance(index, int) or index < 0:
        raise BadInputError(f"A stage must be a whole number from 0 on, not {index!r}; 0 works.")
    for inner in layer._flatten_layers():
        vars(inner)[_MARK] = index
