"""The sessions of a layout with several ranks: processes that stay for the scope, one session in each."""

import math
import pickle
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from drivetrain.devices.device import choose_device
from drivetrain.keras_fit.batches import Samples
from drivetrain.keras_fit.session import Block, FitPlan, FitSession, State, Trained
from drivetrain.ranks.launch import require_importable_script
from drivetrain.ranks.pool import RankPool
from drivetrain.ranks.rank_device import check_enough_devices
from drivetrain.ranks.replica_group import ReplicaGroup
from drivetrain.ranks.sendable import ByValue, require_sendable

__all__ = ["RankProcesses", "RankSessions"]

# Of this process, if it is a rank: the session between two pieces of work.
_session: FitSession | None = None


@dataclass(slots=True)
class RankProcesses:
    """The processes of a scope; they start with the first `fit`, and again for another layout."""

    device: str
    _pool: RankPool | None = None
    _imports_main: bool = False

    def of(self, ranks: int, *, needs_main: bool) -> RankPool:
        """A pool of so many ranks; `needs_main` if what they get is defined in the user's script."""
        if self._pool is not None and (self._pool.size != ranks or needs_main > self._imports_main):
            self.close()
        if self._pool is None:
            if needs_main:
                require_importable_script()
            kind = choose_device(self.device).torch_device.type
            self._imports_main = needs_main
            self._pool = RankPool(
                ranks, threads=None, timeout_s=math.inf, device=kind, imports_main=needs_main
            )
        return self._pool

    def has(self, pool: RankPool) -> bool:
        """Whether a pool is still open."""
        return self._pool is pool

    def close(self) -> None:
        """Ends the processes."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None


@dataclass(slots=True)
class RankSessions:
    """One session per rank, seen as one: what `fit` asks of a session is asked of all of them."""

    plan: FitPlan
    processes: RankProcesses
    _pool: RankPool = field(init=False)
    _folder: Any = None

    def __post_init__(self) -> None:
        layout = self.plan.layout
        check_enough_devices(self.plan.device, replicas=layout.replicas, per_replica=layout.stages)
        require_sendable(self.plan, what="The model")
        needs_main = b"__main__" in pickle.dumps(ByValue(self.plan))
        self._pool = self.processes.of(layout.ranks, needs_main=needs_main)
        self._folder = tempfile.TemporaryDirectory(prefix="drivetrain-")
        for sentence in self._run(_open, ByValue(self.plan))[0]:
            warnings.warn(sentence, stacklevel=2)

    def hold(self, arrays: Samples | None) -> None:
        """Hands arrays to all ranks, in files that they map."""
        if arrays is None:
            return
        folder = Path(self._folder.name)
        for name, tensor in zip(Samples.__slots__, (arrays.inputs, arrays.labels), strict=True):
            np.save(folder / f"{name}.npy", tensor.numpy())
        self._run(_hold, folder)

    def train(self, block: Block) -> Trained:
        """Runs the updates of a block on all ranks."""
        parts: list[Trained] = self._run(_train, ByValue(block))
        outputs = [part for part in parts if part.outputs is not None]
        per_replica = self.plan.layout.stages
        return Trained(
            losses=parts[0].losses,
            # The ranks of a replica have the penalties of their own stages.
            penalties=np.sum([part.penalties for part in parts[:per_replica]], axis=0),
            places=np.concatenate([part.places for part in outputs if part.places is not None])
            if outputs
            else None,
            outputs=torch.cat([part.outputs for part in outputs if part.outputs is not None])
            if outputs
            else None,
        )

    def pull(self) -> State:
        """Weights and slots, each from the rank of the first replica that has it."""
        weights: dict[str, Any] = {}
        slots: dict[str, dict[str, Any]] = {}
        scalars: dict[str, Any] = {}
        for state in self._run(_pull):
            if state is not None:
                weights |= state.value.weights
                scalars |= state.value.scalars
                for slot, values in state.value.slots.items():
                    slots.setdefault(slot, {}).update(values)
        return State(weights, slots, scalars)

    def push(self, state: State) -> None:
        """Hands changed values to all ranks."""
        self._run(_push, ByValue(state))

    def close(self) -> None:
        """Ends the sessions; the processes stay for the next ones."""
        self._folder.cleanup()
        if self.processes.has(self._pool):
            self._run(_close)

    def _run(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        try:
            return self._pool.run(function, *args)
        except BaseException:
            # After a failure the ranks are somewhere inside their work.
            self.processes.close()
            raise


def _open(group: ReplicaGroup, packed: ByValue[FitPlan]) -> tuple[str, ...]:
    global _session
    _session = FitSession(packed.value, group)
    return _session.warnings


def _hold(_group: ReplicaGroup, folder: Path) -> None:
    # Mapped copy-on-write: torch warns about arrays that cannot be written.
    parts = [torch.from_numpy(np.load(folder / f"{name}.npy", mmap_mode="c")) for name in Samples.__slots__]
    _of_this_rank().hold(Samples(*parts))


def _train(_group: ReplicaGroup, packed: ByValue[Block]) -> Trained:
    return _of_this_rank().train(packed.value)


def _pull(_group: ReplicaGroup) -> ByValue[State] | None:
    session = _of_this_rank()
    if not session.is_counted:
        return None
    weights, slots, scalars = session.pull()
    # A view would be sent with the whole vector behind it.
    return ByValue(
        State(
            {name: value.cpu().clone() for name, value in weights.items()},
            {
                slot: {name: value.cpu().clone() for name, value in values.items()}
                for slot, values in slots.items()
            },
            {name: value.cpu().clone() for name, value in scalars.items()},
        )
    )


def _push(_group: ReplicaGroup, packed: ByValue[State]) -> None:
    _of_this_rank().push(packed.value)


def _close(_group: ReplicaGroup) -> None:
    global _session
    _of_this_rank().close()
    _session = None


def _of_this_rank() -> FitSession:
    assert _session is not None, "a session is opened before it gets work"
    return _session
