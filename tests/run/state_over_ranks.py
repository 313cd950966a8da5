"""What ranks of a pool do in the tests of a state that lies on several of them; they import it by name."""

import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch.distributed as dist
from torch import Tensor

from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.state.own_state import own_state
from drivetrain.state.program_state import ProgramState, collect_state, in_one_piece, share_parts
from tests.pipeline.rank_programs import Job, program_of

_BY_PICKLE = ("all_gather_object", "broadcast_object_list", "gather_object")


class Traffic:
    """Bytes that a rank sends: as tensors, and by pickle."""

    tensors = 0
    pickled = 0


@contextmanager
def _counted() -> Iterator[Traffic]:
    traffic = Traffic()
    send = dist.send

    def counted_send(tensor: Tensor, *args: Any, **options: Any) -> None:
        traffic.tensors += tensor.nbytes
        send(tensor, *args, **options)

    def counted(name: str) -> Any:
        original = getattr(dist, name)

        def call(first: Any, *rest: Any, **options: Any) -> Any:
            given = first if name == "broadcast_object_list" else rest[0]
            traffic.pickled += len(pickle.dumps(given))
            return original(first, *rest, **options)

        return call

    others = {name: counted(name) for name in _BY_PICKLE}
    with mock.patch.multiple(dist, send=counted_send, **others):
        yield traffic


def _bytes(tensors: dict[str, Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


def traffic_of_checkpoint(group: ReplicaGroup, job: Job) -> dict[str, int]:
    """What a rank holds of the state, and what it sends for a checkpoint."""
    program = program_of(group, job)
    program.execute(0, 1, goes_on=lambda _: True)
    own = own_state(program)
    held = _bytes(own.model) + _bytes(own.optimiser)
    with _counted() as traffic:
        whole = collect_state(program)
    return {
        "held": held,
        "tensors": traffic.tensors,
        "pickled": traffic.pickled,
        "whole": 0 if whole is None else _bytes(whole.model) + _bytes(whole.optimiser),
    }


def traffic_of_start(group: ReplicaGroup, job: Job) -> dict[str, int]:
    """What a rank holds of the model, what it sends for a start, and the memory of other stages' weights."""
    program = program_of(group, job)
    with _counted() as traffic:
        share_parts(program, None)
    own = own_state(program).model
    state = program.model.state_dict()
    foreign = [state[name] for name, _ in program.model.named_parameters() if name not in own]
    return {
        "held": _bytes(own),
        "tensors": traffic.tensors,
        "pickled": traffic.pickled,
        "foreign": len(foreign),
        "foreign_bytes": sum(weight.untyped_storage().nbytes() for weight in foreign),
    }


def model_at_the_end(group: ReplicaGroup, job: Job) -> tuple[dict[str, Any], dict[str, Any]]:
    """The whole state just before the end, and the model that the first rank has after it."""
    program = program_of(group, job)
    share_parts(program, None)
    program.execute(0, job.updates, goes_on=lambda _: True)
    state = collect_state(program) or ProgramState()
    whole = in_one_piece(program).model.state_dict()
    expected = state.averaged or state.model
    return _arrays(expected), _arrays(whole) if group.is_first else {}


def _arrays(tensors: dict[str, Tensor]) -> dict[str, Any]:
    return {name: tensor.float().numpy().copy() for name, tensor in tensors.items()}
