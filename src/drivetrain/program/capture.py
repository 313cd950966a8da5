"""Captured updates: recorded once as a CUDA graph, then replayed for all updates of the same kind.

For each update the host sets the update number, copies the data of the feed into fixed tensors and launches
the graph. A graph reads and writes the addresses it was recorded with, so everything that changes between
updates must live in tensors that never move: flat parameters, the update counter, the records.
"""

import random
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import nn

from drivetrain.data.feeds.micro_batch import Parcel, ParcelFeed
from drivetrain.devices.device import Device
from drivetrain.passes.whole_model import PlainPasses
from drivetrain.program.bound_objects import bound_objects, obstacle_of_objects
from drivetrain.program.training_program import TrainingProgram

__all__ = ["CapturedUpdates", "Drawn", "Recorder", "RunAhead", "changed", "counters_of", "draws_of"]

_Plain = int | float | str
_Counters = dict[str, _Plain]
# How far the host may run ahead: long enough to hide pauses of the host, short enough to react to a request
# to stop.
_AHEAD_S = 0.5
# A few even if updates are slow, so that the device need not wait for the host; not any number, as each
# pending update holds an event.
_FEWEST_UPDATES, _MOST_UPDATES = 4, 512
# The first update may compile and let cuDNN try its algorithms, neither of which may happen during a capture.
# The second may still compile what the first one made possible.
_WARM_UPS = 2
# The last update of an epoch may have another size, and unreadable samples give a few more kinds. Each
# recording takes memory.
_MOST_KINDS = 4


def counters_of(model: nn.Module) -> _Counters:
    """All numbers and strings among the attributes of modules, by full name.

    A replay runs no Python, so a model that changes one of them in its forward pass cannot be captured.
    """
    return {
        f"{name}.{key}" if name else key: value
        for name, module in model.named_modules()
        for key, value in vars(module).items()
        if isinstance(value, _Plain)
    }


def changed(before: _Counters, after: _Counters) -> str:
    """The name of the first attribute that differs; empty if none does."""
    return next((name for name, value in after.items() if before.get(name) != value), "")


@dataclass(slots=True)
class Drawn:
    """Which random generators were used: that of the device, and those of the host by name."""

    by_device: bool = False
    by_host: str = ""


@contextmanager
def draws_of(device: Device) -> Iterator[Drawn]:
    """Finds out which random generators the block uses; the result is filled in at its end.

    torch's default generators must be seeded inside the block: they are compared with their seeded state.
    """
    drawn = Drawn()
    before = _host_states()
    yield drawn
    after = _host_states()
    names = [name for name, state in after.items() if state != before[name]]
    drawn.by_host = ", ".join(names + (["torch"] if _has_drawn(torch.default_generator) else []))
    drawn.by_device = not device.is_cpu and _offset(device.torch_device) > 0


def _host_states() -> dict[str, object]:
    legacy = np.random.get_state(legacy=False)
    return {"random": random.getstate(), "numpy.random": repr(legacy)}


def _has_drawn(generator: torch.Generator) -> bool:
    untouched = torch.Generator().manual_seed(generator.initial_seed())
    return not torch.equal(untouched.get_state(), generator.get_state())


def _offset(device: torch.device) -> int:
    module = torch.get_device_module(device)
    generators = getattr(module, "default_generators", ())
    index = device.index or 0
    return int(generators[index].get_offset()) if index < len(generators) else 0


class RunAhead:
    """Limits how far the host runs ahead of the device: about half a second of updates."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._pending: deque[torch.Event] = deque()
        self._allowed = _FEWEST_UPDATES
        self._last_s = time.perf_counter()

    def wait(self) -> None:
        """Call it after launching an update; waits if too many are pending."""
        if self._device.is_cpu:
            return
        given = torch.Event(self._device.torch_device)
        given.record()
        self._pending.append(given)
        while len(self._pending) > self._allowed:
            self._pending.popleft().synchronize()
            self._allow()

    def _allow(self) -> None:
        now_s = time.perf_counter()
        seconds, self._last_s = now_s - self._last_s, now_s
        # Raise the limit by at most one: after a pause several updates have completed at once, which would
        # look as if they took no time.
        most = min(_MOST_UPDATES, self._allowed + 1)
        self._allowed = max(_FEWEST_UPDATES, min(most, int(_AHEAD_S / max(seconds, 1e-6))))


class Recorder(Protocol):
    """Records the work that a function launches on a device."""

    def warm_up(self, compute: Callable[[], None]) -> None:
        """Runs the function under the conditions of a recording."""
        ...

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        """Records the work without running it; the function returned runs it any number of times."""
        ...

    def start_over(self) -> None:
        """Says that earlier recordings are no longer used."""
        ...


@dataclass(frozen=True, slots=True)
class _Kind:
    """Updates of the same kind do the same work on other data, so one recording serves them all."""

    numbers: tuple[int, ...]
    share: float
    there: tuple[bool, ...]


@dataclass(frozen=True, slots=True)
class _Recording:
    held: Parcel
    replay: Callable[[], None]


class CapturedUpdates:
    """Runs the updates of a program on one device, captured where possible."""

    def __init__(self, program: TrainingProgram, *, recorder: Recorder) -> None:
        assert isinstance(program.passes, PlainPasses), "only a model in one piece"
        assert isinstance(program.feed, ParcelFeed), "only a feed that hands over whole updates"
        self._program, self._passes, self._feed = program, program.passes, program.feed
        self._recorder = recorder
        self._run_ahead = RunAhead(program.device)
        self._warmed: dict[_Kind, int] = {}
        self._recordings: dict[_Kind, _Recording] = {}
        self._draws = False
        self.replays = 0
        self.failure: str | None = None

    @property
    def status(self) -> str:
        """Whether updates are captured, in words."""
        if self.failure is not None:
            part = f"partly captured ({self.replays} updates)" if self.replays else "not captured"
            return f"{part}: {self.failure}"
        return "captured" if self.replays else f"captured after {_WARM_UPS} updates"

    def forget(self) -> None:
        """Drops all recordings: call it after the work of an update has changed."""
        self.release()
        self._warmed.clear()
        self.replays = 0
        self.failure = None

    def release(self) -> None:
        """Frees the memory of all recordings."""
        if self._recordings:
            self._recordings.clear()
            self._recorder.start_over()

    def run(self, update: int) -> None:
        """Runs one update: replays it if its kind was recorded, otherwise runs or records it."""
        batches = self._program.batches
        parcel = self._feed.collect(update)
        kind = _Kind(tuple(batches.numbers(update)), batches.share(update), parcel.there)
        self._program.context.update.fill_(update)
        if kind not in self._recordings and self._is_ready(kind):
            self._record(kind, parcel)
        recording = self._recordings.get(kind)
        if recording is None:
            self._run_once(kind, parcel, update)
        else:
            self._replay(recording, kind, parcel, update)
        self._run_ahead.wait()

    def _is_ready(self, kind: _Kind) -> bool:
        has_room = len(self._recordings) < _MOST_KINDS
        return self.failure is None and has_room and self._warmed.get(kind, 0) >= _WARM_UPS

    def _run_once(self, kind: _Kind, parcel: Parcel, update: int) -> None:
        compute = self._compute(kind, parcel, seeded_for=update)
        if self.failure is not None:
            compute()
            return
        before, objects = counters_of(self._program.model), bound_objects(self._program.model)
        with draws_of(self._program.device) as drawn:
            self._recorder.warm_up(compute)
        self._warmed[kind] = self._warmed.get(kind, 0) + 1
        counting = changed(before, counters_of(self._program.model))
        replaced = obstacle_of_objects(objects, bound_objects(self._program.model))
        if counting:
            self.failure = f"the Python attribute {counting} of the model changes from update to update"
        elif self._program.draws.facts.by_micro_batch:
            self.failure = f"the model draws from generators ({self._program.draws.facts.by_micro_batch[0]})"
        elif replaced:
            self.failure = replaced
        elif drawn.by_host:
            self.failure = f"the model draws random numbers on the CPU ({drawn.by_host})"
        elif drawn.by_device and len(kind.numbers) > 1:
            self.failure = "the model draws from torch's default generator, seeded for each micro-batch"
        self._draws = self._draws or drawn.by_device

    def _record(self, kind: _Kind, parcel: Parcel) -> None:
        held = Parcel(tuple(tensor.clone() for tensor in parcel.tensors), parcel.there)
        try:
            replay = self._recorder.record(self._compute(kind, held, seeded_for=None))
        except RuntimeError as error:
            self.failure = str(error).splitlines()[0] or type(error).__name__
            # The failed pass never ran, so what it reported must not reach the batch-norm statistics. Earlier
            # recordings draw from a generator state that was replaced, so they are dropped too.
            self._program.batch_norms.forget()
            self._program.homes.go_home()
            self.release()
            return
        self._recordings[kind] = _Recording(held, replay)

    def _replay(self, recording: _Recording, kind: _Kind, parcel: Parcel, update: int) -> None:
        self._hand_over(recording.held, parcel)
        if self._draws:
            self._passes.seed_generators(update, kind.numbers[0])
        recording.replay()
        self.replays += 1

    def _hand_over(self, held: Parcel, parcel: Parcel) -> None:
        for place, brought in zip(held.tensors, parcel.tensors, strict=True):
            place.copy_(brought)

    def _compute(self, kind: _Kind, parcel: Parcel, *, seeded_for: int | None) -> Callable[[], None]:
        def compute() -> None:
            unpacked = self._feed.unpack(parcel)
            numbered = self._program.batches.numbered(unpacked, wanted=kind.numbers)
            self._program.run_batches(numbered, share=kind.share, seeded_for=seeded_for)

        return compute
