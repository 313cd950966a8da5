"""The layouts of the corpus: each splits the same global batch of 8, all but one in micro-batches of 2."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache

import torch

from drivetrain.verify.cuts import Layout
from tests.corpus.modules import CASES
from tests.corpus.registry import Case

__all__ = ["OTHER_MICRO", "REFERENCE", "comparable", "layout_of", "not_comparable"]

_MICRO = 2
REFERENCE = Layout(micro=_MICRO, accumulation=4)
OTHER_MICRO = "larger micro-batches"
_REPLICAS = "replicas on ranks"
_STAGES = replace(REFERENCE, stages=2)
_PLAYED = replace(_STAGES, processes=1)

_LAYOUTS: dict[str, Layout] = {
    OTHER_MICRO: Layout(micro=2 * _MICRO, accumulation=2),
    "2 stages": _PLAYED,
    "2 stages, zero-bubble": replace(_PLAYED, schedule="zero-bubble"),
    "2 stages, grouped": replace(_PLAYED, schedule="grouped"),
    "2 stages, recomputed": replace(_PLAYED, schedule="sequential", recomputation=True),
    "4 stages": replace(_PLAYED, stages=4, schedule="gpipe"),
    "recomputation": replace(REFERENCE, recomputation=True),
    _REPLICAS: Layout(micro=_MICRO, accumulation=2, replicas=2),
    "stages on ranks": _STAGES,
}
# Where stages begin. Nets of this size are split automatically before their classifier, where few numbers
# have to be sent; every idea is to be cut in front of it, behind it and, in 4 stages, on both sides.
_SPLITS: dict[str, tuple[str, ...]] = {
    "2 stages, zero-bubble": ("tail",),
    "2 stages, grouped": ("middle",),
    "2 stages, recomputed": ("tail",),
    "4 stages": ("middle", "tail", "last"),
    "stages on ranks": ("tail",),
}


def layout_of(case: Case, name: str) -> Layout:
    """A layout by its name, with the split points that it has in a module."""
    middle, last = _places(case.name)
    splits = {"middle": case.split or middle, "tail": "tail", "last": last}
    return replace(_LAYOUTS[name], splits=tuple(splits[place] for place in _SPLITS.get(name, ())))


@cache
def _places(name: str) -> tuple[str, str]:
    """The first child between stem and tail, and the first one behind the tail."""
    with torch.random.fork_rng(devices=[]):
        children = [child for child, _ in CASES[name].make().named_children()]
    middle = next(child for child in children if child not in ("stem", "tail", "head"))
    return middle, "again" if "again" in children else "head"


def comparable(case: Case) -> Iterator[str]:
    """The layouts in which a module has to compute what it computes in the reference."""
    return (name for name in _LAYOUTS if name not in not_comparable(case))


def not_comparable(case: Case) -> tuple[str, ...]:
    """The layouts that change the result of a module by what it does."""
    return {"sample": (), "micro-batch": (OTHER_MICRO,), "call": (OTHER_MICRO, _REPLICAS)}[case.scope]
