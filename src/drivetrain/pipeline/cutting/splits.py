"""The stage of every layer, from the layer names of --pipeline-splits or from marks on modules."""

from collections.abc import Sequence

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean
from drivetrain.pipeline.cutting.marks import mark_of
from drivetrain.pipeline.graph.trace import Layer, TracedModel

__all__ = ["resolve_names", "stages_by_marks", "stages_by_names"]

_OPTION = "--pipeline-splits"


def stages_by_names(traced: TracedModel, names: Sequence[str]) -> tuple[int, ...]:
    """The stage of every layer; each name is the first layer of stage 1, 2, ..."""
    firsts = resolve_names(traced, names)
    positions = {layer.name: index for index, layer in enumerate(traced.layers)}
    starts = [positions[first] for first in firsts]
    return tuple(sum(start <= index for start in starts) for index in range(len(traced.layers)))


def resolve_names(traced: TracedModel, names: Sequence[str]) -> tuple[str, ...]:
    """The full names of the first layers of stages 1, 2, ..., in the order in which they run."""
    firsts = [_resolve(traced, name) for name in names]
    positions = {layer.name: index for index, layer in enumerate(traced.layers)}
    for name, first in zip(names, firsts, strict=True):
        if positions[first] == 0:
            raise BadInputError(
                f"{_OPTION} {name}: {first} is the first layer of the model, which always begins stage 0; "
                f"{_later_example(traced)}"
            )
    in_order = sorted(set(firsts), key=positions.__getitem__)
    if firsts != in_order:
        kind = "names a layer twice" if len(in_order) < len(firsts) else "is not in the order of the layers"
        raise BadInputError(
            f"{_OPTION} {' '.join(names)} {kind}; {_OPTION} {' '.join(in_order)} works. {_listed(traced)}"
        )
    return tuple(firsts)


def _later_example(traced: TracedModel) -> str:
    later = [layer.name for layer in traced.layers[1:]]
    return f"use a later layer, such as {later[len(later) // 2]}." if later else "it has no other layer."


def _resolve(traced: TracedModel, name: str) -> str:
    # A Keras model may know a layer by another name.
    name = getattr(traced.model, "layer_aliases", {}).get(name, name)
    for layer in traced.layers:
        if layer.name == name:
            return name
    for layer in traced.layers:
        if name and (layer.path == name or layer.path.startswith(f"{name}.")):
            return layer.name
    by_start: dict[str, str] = {}
    for layer in traced.layers:
        start = _shortest_start(layer, name)
        if start is not None:
            by_start.setdefault(start, layer.name)
    if len(by_start) == 1:
        return next(iter(by_start.values()))
    if by_start and name:
        raise BadInputError(
            f"{_OPTION} {name} matches several layers: {', '.join(by_start)}; use one of these names."
        )
    hint = did_you_mean(name, [layer.name for layer in traced.layers])
    raise BadInputError(f"{_OPTION} {name}: the model has no such layer.{hint} {_listed(traced)}")


def _shortest_start(layer: Layer, prefix: str) -> str | None:
    """The shortest path of modules around a layer, or its name, that begins with a prefix."""
    for whole in (layer.path, layer.name):
        parts = whole.split(".")
        paths = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
        found = next((path for path in paths if path.startswith(prefix)), None)
        if found is not None:
            return found
    return None


def _listed(traced: TracedModel) -> str:
    return f"Layers in the order in which they run: {', '.join(layer.name for layer in traced.layers)}."


def stages_by_marks(traced: TracedModel) -> tuple[int, ...]:
    """The stage of every layer by the marks on modules; unmarked layers join the layer before them."""
    stages: list[int] = []
    current = 0
    for layer in traced.layers:
        mark = _mark(traced, layer)
        if mark is not None and mark < current and not _goes_anywhere(traced, layer):
            raise BadInputError(
                f"Layer {layer.name} is marked for stage {mark}, but runs after layers of stage {current}; "
                f"mark stages in the order in which the layers run, for example {current} here."
            )
        current = max(current, mark or 0)
        stages.append(current)
    missing = sorted(set(range(max(stages, default=0))) - set(stages))
    if missing:
        raise BadInputError(
            f"No layer of the model is marked for stage {missing[0]}, but one is for stage {max(stages)}; "
            "number the stages from 0 without gaps."
        )
    return tuple(stages)


def _goes_anywhere(traced: TracedModel, layer: Layer) -> bool:
    """Whether a layer fits any stage: a function, or a module without weights that is used several times."""
    module = traced.module_of(layer.node)
    if module is None:
        return True
    is_reused = sum(other.module_path == layer.module_path for other in traced.layers) > 1
    return is_reused and not any(True for _ in module.parameters())


def _mark(traced: TracedModel, layer: Layer) -> int | None:
    """The mark of the nearest marked module around a layer."""
    parts = (layer.scope if _goes_anywhere(traced, layer) else layer.path).split(".")
    for count in range(len(parts), -1, -1):
        mark = mark_of(traced.model.get_submodule(".".join(parts[:count])))
        if mark is not None:
            return mark
    return None
