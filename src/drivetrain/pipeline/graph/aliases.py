"""In-place changes in a model that is split into stages: which steps see them, and which received values
a stage must copy before it changes them.
"""

from collections.abc import Mapping

from torch.fx import Node

from drivetrain.core.errors import BadInputError
from drivetrain.pipeline.graph.node_kinds import inputs_kept_alive, may_change_inputs, mutated_input
from drivetrain.pipeline.graph.trace import TracedModel

__all__ = ["check_changes_in_place", "find_changes_seen_elsewhere", "inputs_to_copy"]


def inputs_to_copy(traced: TracedModel, nodes: list[Node]) -> set[Node]:
    """The values a stage receives that its `nodes` might change in place, directly or through a view."""
    own = set(nodes)
    found: set[Node] = set()
    for node in nodes:
        for value in _changed_values(traced, node):
            found |= _local_aliases(traced, value, own) - own
    return found


def check_changes_in_place(traced: TracedModel, stage_of: Mapping[Node, int]) -> None:
    """Refuses a split that would hide an in-place change from a layer that sees it in the unsplit model."""
    clash = next(iter(_find_hidden_changes(traced, stage_of)), None)
    if clash is not None:
        names = {layer.node: layer.name for layer in traced.layers}
        changer, reader = (names.get(node, node.name) for node in clash)
        raise BadInputError(
            f"--pipeline-splits: layer {changer} changes in place a tensor that layer {reader} reads in "
            "another stage; put both into one stage, or make the change out of place."
        )


def _find_hidden_changes(traced: TracedModel, stage_of: Mapping[Node, int]) -> list[tuple[Node, Node]]:
    """Pairs of layers: one changes a tensor in place, the other would no longer see the change."""
    clashes = []
    for node in traced.graph.nodes:
        value = _mutated(traced, node)
        if value is None:
            continue
        own = {other for other, stage in stage_of.items() if stage == stage_of[node]}
        local = _local_aliases(traced, value, own)
        for alias in _all_aliases(traced, value, before=traced.positions[node]) - {value}:
            # This stage computes the alias, and sends it only at its end: readers see the change. A received
            # value is a copy instead, so a change to it stays within this stage.
            if alias in local and alias in own:
                continue
            readers = (user for user in alias.users if _reads_after(traced, user, node))
            clashes += [(node, user) for user in readers if not (alias in local and user in own)]
    return clashes


def find_changes_seen_elsewhere(traced: TracedModel) -> list[tuple[Node, Node]]:
    """For every in-place change that is seen through another value: the first alias and the last reader."""
    spans = []
    for node in traced.graph.nodes:
        value = _mutated(traced, node)
        if value is None:
            continue
        aliases = _all_aliases(traced, value, before=traced.positions[node])
        others = aliases - {value}
        readers = [user for alias in others for user in alias.users if _reads_after(traced, user, node)]
        if readers:
            place = traced.positions.__getitem__
            spans.append((min(aliases, key=place), max(readers, key=place)))
    return spans


def _reads_after(traced: TracedModel, user: Node, change: Node) -> bool:
    return traced.positions[user] > traced.positions[change] and user not in traced.reads


def _mutated(traced: TracedModel, node: Node) -> Node | None:
    return mutated_input(node, module=traced.module_of(node), reads=traced.reads)


def _changed_values(traced: TracedModel, node: Node) -> list[Node]:
    if may_change_inputs(node, module=traced.module_of(node)):
        return [value for value in node.all_input_nodes if value not in traced.reads]
    value = _mutated(traced, node)
    return [] if value is None else [value]


def _neighbours(traced: TracedModel, value: Node) -> list[Node]:
    """The inputs and the users of a value that may share its memory."""
    below = [user for user in value.users if value in _kept(traced, user)]
    return [*_kept(traced, value), *below]


def _kept(traced: TracedModel, node: Node) -> tuple[Node, ...]:
    kept = inputs_kept_alive(node, module=traced.module_of(node), reads=traced.reads)
    return tuple(value for value in kept if value.op != "get_attr")


def _local_aliases(traced: TracedModel, value: Node, own: set[Node]) -> set[Node]:
    """The values that a stage computes or receives and that may share memory with `value`."""
    found, waiting = {value}, [value]
    while waiting:
        here = waiting.pop()
        # Received values arrive separately, and are copied separately before a change, so two of them never
        # share memory here: from one the search continues only to values that this stage computes.
        reached = {other for other in _neighbours(traced, here) if here in own or other in own}
        waiting += reached - found
        found |= reached
    return found


def _all_aliases(traced: TracedModel, value: Node, *, before: int) -> set[Node]:
    found, waiting = {value}, [value]
    while waiting:
        reached = {other for other in _neighbours(traced, waiting.pop()) if traced.positions[other] < before}
        waiting += reached - found
        found |= reached
    return found
