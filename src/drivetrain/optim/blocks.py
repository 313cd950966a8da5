"""Divides the parameters of any model into blocks, from the stem to the head."""

import re
import sys
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, takewhile
from os.path import commonprefix

from torch import nn

from drivetrain.models.heads import head_parameters

__all__ = ["Block", "blocks_of"]

_CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)
# Layers of one block that lie next to each other, as conv2_block1_layer1_conv of our cifar_resnet8, or as
# mixed0_branch1x1_1_conv of our inception_v3.
_FLAT_BLOCK = re.compile(r"(.*(?:block_?|mixed)\d+[a-z]?)_")


@dataclass(frozen=True, slots=True)
class Block:
    """Parameters that are trained at one rate."""

    name: str
    parameters: tuple[str, ...]


def blocks_of(model: nn.Module) -> list[Block]:
    """The blocks of a model in the order of its layers: the stem with all embeddings first, the head last.

    A model of timm says itself what belongs together. In any other a block is a child of a list of equal
    layers (a stage of a ResNet, the layers of a transformer), or layers named as one block.
    """
    head = head_parameters(model)
    depth_of = _depths_of_timm(model)
    if head and depth_of:
        return _blocks_of_timm(depth_of, head=head)
    rest = [name for name, _ in model.named_parameters() if name not in set(head)]
    blocks = _blocks_by_structure(model, rest)
    return [*blocks, Block(_layer_of(head[0]), tuple(head))] if head else blocks


def _layer_of(parameter: str) -> str:
    return parameter.rpartition(".")[0] or parameter


def _depths_of_timm(model: nn.Module) -> dict[str, int]:
    """The depth of every parameter by a model's own `group_matcher`; empty for models of other libraries."""
    timm = sys.modules.get("timm.models")
    found = [(name, module) for name, module in model.named_modules() if hasattr(module, "group_matcher")]
    if timm is None or not found:
        return {}
    outer, inner = found[0]
    prefix = f"{outer}." if outer else ""
    depth_of = timm.group_parameters(inner, inner.group_matcher(coarse=False), reverse=True)
    return {name: depth_of.get(name.removeprefix(prefix), 0) for name, _ in model.named_parameters()}


def _blocks_of_timm(depth_of: Mapping[str, int], *, head: Sequence[str]) -> list[Block]:
    groups: dict[int, list[str]] = {}
    for name, depth in depth_of.items():
        groups.setdefault(depth, []).append(name)
    # A norm between the last block and the classifier counts as the head.
    last = [*groups.pop(depth_of[head[0]]), *head]
    groups = {depth: [name for name in group if name not in head] for depth, group in groups.items()}
    outer = commonprefix(list(depth_of))
    blocks = [
        Block(_shared_name(group, outer=outer), tuple(group)) for _, group in sorted(groups.items()) if group
    ]
    return [*blocks, Block(_layer_of(head[0]), tuple(dict.fromkeys(last)))]


def _shared_name(group: Sequence[str], *, outer: str) -> str:
    """The name of the module that holds most of a group, inside the module `outer`."""
    # Not that of all: the last group often holds the final norm too.
    pair = zip(group[0].split("."), group[len(group) // 2].split("."), strict=False)
    shared = ".".join(one for one, _ in takewhile(lambda words: words[0] == words[1], pair))
    return shared if len(shared) > len(outer) and shared != group[0] else _layer_of(group[0])


def _blocks_by_structure(model: nn.Module, names: Sequence[str]) -> list[Block]:
    units = set(_units(model, ""))
    groups: dict[str, list[str]] = {}
    for name in names:
        groups.setdefault(_block_name(name, units), []).append(name)
    return _joined(groups, ndim_of={name: model.get_parameter(name).ndim for name in names})


def _block_name(parameter: str, units: Container[str]) -> str:
    """The name of the block that a parameter belongs to; a parameter of a container belongs to that."""
    owner = parameter.rpartition(".")[0]
    outer = accumulate(owner.split("."), lambda before, name: f"{before}.{name}")
    unit = next((name for name in outer if name in units), owner)
    flat = _FLAT_BLOCK.match(unit)
    return flat[1] if flat else unit


def _joined(groups: Mapping[str, list[str]], *, ndim_of: Mapping[str, int]) -> list[Block]:
    """Adds norms and the like to the group before them, and all that precedes the first block to the stem."""
    blocks: list[Block] = []
    for name, group in groups.items():
        if blocks and all(ndim_of[parameter] < 2 for parameter in group):
            blocks[-1] = replace(blocks[-1], parameters=(*blocks[-1].parameters, *group))
        else:
            blocks.append(Block(name or group[0], tuple(group)))
    layers = [{_layer_of(name) for name in block.parameters if ndim_of[name] > 1} for block in blocks]
    first = next((index for index, owners in enumerate(layers) if len(owners) > 1), 0)
    stem = [name for block in blocks[:first] for name in block.parameters]
    return [*([Block(blocks[0].name, tuple(stem))] if stem else []), *blocks[first:]]


def _units(module: nn.Module, name: str) -> Iterator[str]:
    """The names of modules that are not divided any further; containers and what holds blocks are."""
    for child_name, child in module.named_children():
        full = f"{name}.{child_name}" if name else child_name
        if isinstance(child, _CONTAINERS) or _holds_blocks(child):
            yield from _units(child, full)
        else:
            yield full


def _holds_blocks(module: nn.Module) -> bool:
    """Whether a list of at least two equal children with several layers each is inside."""
    return any(isinstance(inner, _CONTAINERS) and _is_list_of_blocks(inner) for inner in module.modules())


def _is_list_of_blocks(container: nn.Module) -> bool:
    children = list(container.children())
    kinds = {type(child) for child in children}
    return len(children) > 1 and len(kinds) == 1 and all(_num_layers(child) > 1 for child in children)


def _num_layers(module: nn.Module) -> int:
    """The number of layers with a weight of two or more dimensions."""
    return sum(
        any(weight.ndim > 1 for weight in inner.parameters(recurse=False)) for inner in module.modules()
    )
