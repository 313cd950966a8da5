"""The stage of each layer in evaluation, for a model whose code takes other steps there than in training."""

from collections.abc import Mapping
from itertools import count

from torch.fx import Node

from drivetrain.core.errors import BadInputError
from drivetrain.pipeline.cutting.stage_values import node_stages, numbers_of_step
from drivetrain.pipeline.graph.trace import Layer, TracedModel
from drivetrain.pipeline.graph.tracer import user_line

__all__ = ["find_evaluation_stages"]

_Place = tuple[str | None, str, object, int]


def find_evaluation_stages(traced: TracedModel, stages: Mapping[Node, int]) -> dict[Node, int]:
    """The stage of every layer of the evaluation graph; `stages` are those of the training graph.

    A layer with weights runs in the stage that trains them. Any other layer runs in the stage that it has in
    training, if the order of the stages allows that, or as early as its inputs allow.
    """
    evaluation = traced.in_evaluation
    last = max(stages.values())
    in_training = {place: stages[layer.node] for place, layer in _places(traced).items()}
    homes = _weight_homes(traced, stages)
    owners = {layer.node: _owner(evaluation, layer, homes) for layer in evaluation.layers}
    latest = _latest_stages(evaluation, owners, last)
    found: dict[Node, int] = {}
    for place, layer in _places(evaluation).items():
        node, owner = layer.node, owners[layer.node]
        earliest = max((found[value] for value in evaluation.sources(node) if value in found), default=0)
        if owner is not None and owner < earliest:
            raise _backwards(layer, owner, earliest)
        wanted = in_training.get(place, earliest)
        found[node] = max(earliest, min(wanted, latest[node])) if owner is None else owner
    return node_stages(evaluation, {node.name: stage for node, stage in found.items()})


def _places(traced: TracedModel) -> dict[_Place, Layer]:
    """Every layer by the place of its code: the n-th step of its kind in a module.

    Names do not serve here, because the names of functions are numbered through the whole graph.
    """
    places: dict[_Place, Layer] = {}
    for layer in traced.layers:
        kind = (layer.module_path, layer.scope, layer.node.target)
        number = next(number for number in count() if (*kind, number) not in places)
        places[*kind, number] = layer
    return places


def _weight_homes(traced: TracedModel, stages: Mapping[Node, int]) -> dict[int, int]:
    """The stage that holds each weight and statistic, by the id of its tensor."""
    return {
        id(tensor): stages[layer.node]
        for layer in traced.layers
        for _, tensor in numbers_of_step(traced, layer.node)
    }


def _owner(evaluation: TracedModel, layer: Layer, homes: Mapping[int, int]) -> int | None:
    """The stage that trains the weights of a layer; None for a layer without any."""
    found = {
        homes[id(tensor)] for _, tensor in numbers_of_step(evaluation, layer.node) if id(tensor) in homes
    }
    if len(found) > 1:
        raise BadInputError(
            f"--pipeline-splits: in evaluation {_line(layer)} uses weights of stages "
            f"{' and '.join(map(str, sorted(found)))} in one step; put the layers that train them into one "
            "stage."
        )
    return next(iter(found), None)


def _latest_stages(evaluation: TracedModel, owners: Mapping[Node, int | None], last: int) -> dict[Node, int]:
    """The latest stage of each layer from which its result still reaches all its readers."""
    latest: dict[Node, int] = {}
    for layer in reversed(evaluation.layers):
        owner = owners[layer.node]
        latest[layer.node] = min(latest.get(layer.node, last), last if owner is None else owner)
        for value in evaluation.sources(layer.node):
            latest[value] = min(latest.get(value, last), latest[layer.node])
    return latest


def _backwards(layer: Layer, owner: int, earliest: int) -> BadInputError:
    return BadInputError(
        f"--pipeline-splits: the weights of layer {layer.name} are in stage {owner}, but in evaluation "
        f"{_line(layer)} gives it a result of the later stage {earliest}; split the model elsewhere, or use "
        "--stages 1."
    )


def _line(layer: Layer) -> str:
    return user_line([layer.node.meta["line"]]) or "the code of --model"
