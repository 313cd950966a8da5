"""A pool of ranks that stay alive between many pieces of work, for `verify`, Keras models and tests."""

import os
import pickle
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from types import ModuleType, TracebackType
from typing import Any, Self

from torch._C._distributed_c10d import PrefixStore, Store

from drivetrain.core.errors import RunFailedError
from drivetrain.ranks.find_place import find_place, place_variables
from drivetrain.ranks.join import JOIN_TIMEOUT_S, join_at, leave, meet
from drivetrain.ranks.rank_failure import RankFailure, RankTracebackError, primary_failure
from drivetrain.ranks.rank_job import RankJob
from drivetrain.ranks.rank_place import RankPlace
from drivetrain.ranks.rank_process import failure_of
from drivetrain.ranks.replica_group import ReplicaGroup

__all__ = ["Answer", "RankPool", "Work", "serve_pool"]

# An answer ends the wait at once; only the exit status of a rank is polled, this often.
_LOOK_S = 0.02
_POOL_START_TIMEOUT_S = 300.0
# After a failure the other ranks get this long to notice it; one that does not answer hangs in a collective.
_PATIENCE_AFTER_FAILURE_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """The `number`-th piece of work, for the first `size` ranks: a pickled function and its arguments."""

    number: int
    size: int
    timeout_s: float
    content: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """A pickled result, or a failure with the error itself if it can be pickled."""

    content: bytes = b""
    failure: RankFailure | None = None


def serve_pool(timeout_s: float, device: str | None, link: "Connection[Answer, Work]") -> None:
    """Answers pieces of work until the link is closed.

    Each has a process group of its own, unless a `device` is named: then all have one group for its tensors.
    """
    place = find_place(os.environ)
    assert place is not None
    # Processes that the work starts would otherwise take themselves for ranks of this pool.
    for name in place_variables(place):
        del os.environ[name]
    store = meet(place, timeout_s=timeout_s)
    link.send(Answer())
    group = None if device is None else _lasting_group(store, place=place, device=device)
    with suppress(EOFError):
        while True:
            work = link.recv()
            link.send(_answer(work, place=place, store=store, group=group))


def _lasting_group(store: Store, *, place: RankPlace, device: str) -> ReplicaGroup:
    if place.world_size == 1:
        return ReplicaGroup()
    return join_at(store, place=place, device=device, timeout_s=JOIN_TIMEOUT_S)


def _answer(work: Work, *, place: RankPlace, store: Store, group: ReplicaGroup | None) -> Answer:
    try:
        function, args = pickle.loads(work.content)
        if group is not None:
            return Answer(content=pickle.dumps(function(group, *args)))
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
    # A new group each time: after a failure the connections of a group cannot be used again.
    group = join_at(
        PrefixStore(f"work/{work.number}", store),
        place=replace(place, world_size=work.size, local_world_size=work.size),
        device="cpu",
        # Longer than the timeout of the pool, which then fails first with the stacks of all ranks.
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


class RankPool:
    """`size` ranks, started with the first piece of work and again after one died or hung.

    With a `device`, such as "cpu", all work is done in one process group for tensors of that kind. Without
    `imports_main` the ranks do not import the script that starts them, which then needs no main guard.
    """

    def __init__(
        self,
        size: int,
        *,
        threads: int | None = 1,
        timeout_s: float = 60.0,
        device: str | None = None,
        imports_main: bool = True,
    ) -> None:
        self.size = size
        self._threads, self._timeout_s = threads, timeout_s
        self._device, self._imports_main = device, imports_main
        self._job: RankJob | None = None
        self._links: list[Connection[Work, Answer]] = []
        self._works = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def run(self, function: Callable[..., Any], *args: Any, ranks: int | None = None) -> list[Any]:
        """Calls function(group, *args) on every rank and returns the results in rank order.

        `ranks` takes only the first ranks. Function, arguments and results are pickled. The error of a rank
        is raised here, with the rank's traceback as its cause. After the timeout of the pool the work fails
        with the stacks of all ranks.
        """
        ranks = self.size if ranks is None else ranks
        assert 1 <= ranks <= self.size, f"{ranks} ranks of {self.size}"
        content = pickle.dumps((function, args))
        job = self._job or self._start()
        self._works += 1
        for link in self._links[:ranks]:
            link.send(Work(number=self._works, size=ranks, timeout_s=self._timeout_s, content=content))
        answers = self._answers(job, ranks=ranks, timeout_s=self._timeout_s)
        return [pickle.loads(answer.content) for answer in answers]

    def close(self) -> None:
        """Ends the ranks."""
        if self._job is not None:
            self._job.__exit__(None, None, None)
            self._job = None
        for link in self._links:
            link.close()
        self._links = []

    def _start(self) -> RankJob:
        pipes = [get_context("spawn").Pipe() for _ in range(self.size)]
        ends: list[tuple[Any, ...]] = [(theirs,) for _, theirs in pipes]
        job = RankJob(
            serve_pool,
            args=(_POOL_START_TIMEOUT_S, self._device),
            ranks=self.size,
            threads=self._threads,
            own_args=ends,
            has_terminal=False,
        )
        with nullcontext() if self._imports_main else _without_main():
            self._job = job.__enter__()
        self._links = [own for own, _ in pipes]
        for _, theirs in pipes:
            theirs.close()
        # The first answer of each rank says that it is up; importing torch takes long on a busy machine.
        self._answers(job, ranks=self.size, timeout_s=_POOL_START_TIMEOUT_S)
        return job

    def _answers(self, job: RankJob, *, ranks: int, timeout_s: float) -> list[Answer]:
        """The answers of the first ranks; raises a failure, and ends all ranks if one is lost."""
        answers = self._wait_for_answers(job, ranks=ranks, timeout_s=timeout_s)
        failures = _failures(answers)
        late = [rank for rank in range(ranks) if rank not in answers]
        stacks = job.stacks() if late else ""
        if late or job.statuses:
            self.close()
        if failures:
            failure = primary_failure(failures)
            raise _error_of(answers[failure.rank]) from RankTracebackError(failure.traceback_text)
        if late:
            raise RunFailedError(
                f"Ranks {late} did not answer within {timeout_s:g} seconds."
            ) from RankTracebackError(stacks)
        return [answers[rank] for rank in range(ranks)]

    def _wait_for_answers(self, job: RankJob, *, ranks: int, timeout_s: float) -> dict[int, Answer]:
        answers: dict[int, Answer] = {}
        deadline_s, has_failed = time.monotonic() + timeout_s, False
        while len(answers) < ranks and time.monotonic() < deadline_s:
            self._take_answers(answers, job=job, ranks=ranks)
            if not has_failed and _failures(answers):
                deadline_s = min(deadline_s, time.monotonic() + _PATIENCE_AFTER_FAILURE_S)
                has_failed = True
        return answers

    def _take_answers(self, answers: dict[int, Answer], *, job: RankJob, ranks: int) -> None:
        waiting = {self._links[rank]: rank for rank in range(ranks) if rank not in answers}
        for ready in wait(list(waiting), timeout=_LOOK_S):
            # The link of a dead rank is closed; `job.look` finds out how it died.
            with suppress(EOFError, ConnectionError):
                assert isinstance(ready, Connection)
                answers[waiting[ready]] = ready.recv()
        job.look(wait_s=0)
        for rank in job.statuses:
            if rank < ranks and rank not in answers:
                answers[rank] = Answer(failure=_death_of(rank, job=job))


@contextmanager
def _without_main() -> Iterator[None]:
    """Hides the script of this process: multiprocessing tells new processes to import what `__main__` is."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


def _failures(answers: dict[int, Answer]) -> list[RankFailure]:
    return [answer.failure for answer in answers.values() if answer.failure is not None]


def _death_of(rank: int, *, job: RankJob) -> RankFailure:
    for failure in job.failures:
        if failure.rank == rank:
            return failure
    status = job.statuses[rank]
    return RankFailure(
        rank=rank, host=job.host, time_s=time.time(), message=f"exit status {status} during its work"
    )


def _error_of(answer: Answer) -> BaseException:
    """The error of the rank itself if it could be pickled: tests want to catch its type."""
    assert answer.failure is not None
    if not answer.content:
        return answer.failure.as_error()
    error: BaseException = pickle.loads(answer.content)
    error.add_note(f"on rank {answer.failure.rank}")
    return error
