"""What a rank of a pool does: one piece of work after the other, each in a group of its own."""

import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store

from drivetrain.ranks.environment import find_place, place_variables
from drivetrain.ranks.join import join_at, leave, meet
from drivetrain.ranks.rank_failure import RankFailure
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.ranks.rank_process import failure_of
from drivetrain.ranks.replica_group import ReplicaGroup

__all__ = ["Answer", "Work", "serve_pool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The `number`-th piece of work, for the first `size` ranks: a pickled function and its arguments."""

    number: int
    size: int
    timeout_s: float
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A pickled result, or a failure with the error itself where that can be pickled."""

    content: bytes = b""
    failure: RankFailure | None = None


def serve_pool(timeout_s: float, link: "Connection[Answer, Work]") -> None:
    """Works until the other end of the link is closed."""
    place = find_place(os.environ)
    assert place is not None
    # What the work itself starts is no rank of this pool.
    for name in place_variables(place):
        del os.environ[name]
    store = meet(place, timeout_s=timeout_s)
    link.send(Answer())
    with suppress(EOFError):
        while True:
            work = link.recv()
            link.send(_answer(work, place=place, store=store))


def _answer(work: Work, *, place: RankPlace, store: Store) -> Answer:
    try:
        function, args = pickle.loads(work.content)
        return Answer(content=pickle.dumps(_result(function, args, work=work, place=place, store=store)))
    except BaseException as error:
        return Answer(content=_pickled(error), failure=failure_of(error, rank=place.rank))


def _result(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    *,
    work: Work,
    place: RankPlace,
    store: Store,
) -> Any:
    if work.size == 1:
        return function(ReplicaGroup(), *args)
    # A new group each time: a failure leaves a group's connections unusable.
    group = join_at(
        PrefixStore(f"work/{work.number}", store),
        place=replace(place, world_size=work.size, local_world_size=work.size),
        device="cpu",
        # The pool itself notices first what takes too long, and says more about it.
        timeout_s=2 * work.timeout_s,
    )
    try:
        return function(group, *args)
    finally:
        leave()


def _pickled(error: BaseException) -> bytes:
    try:
        content = pickle.dumps(error)
        pickle.loads(content)
    except Exception:
        return b""
    return content
