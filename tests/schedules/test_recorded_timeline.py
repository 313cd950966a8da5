"""What a timeline records, and what is read from it."""

import time

import pytest

from drivetrain.schedules.actions import Action, Kind, chain
from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.observer import Observer, Part, all_of, observed, observed_part
from drivetrain.schedules.recorded_timeline import (
    MemoryStep,
    TimedSpan,
    TimelineRecorder,
    chrome_trace,
    measure_steps,
    replay,
)
from drivetrain.schedules.simulator import simulate

STEP = Action(Kind.FORWARD, 0, 3)
FORWARD_S, BACKWARD_S = (1.0, 3.0), (2.0, 5.0)


def _recorder(updates: range, *, calls: list[str] | None = None) -> TimelineRecorder:
    calls = [] if calls is None else calls
    return TimelineRecorder(updates, replica=1, devices=[2], synchronise=lambda: calls.append("synchronised"))


def _update(observer: Observer | None, update: int) -> None:
    with observed_part(observer, update, Part.PASSES), observed(observer, 2, "forward", STEP):
        time.sleep(0.002)
    with observed_part(observer, update, Part.OPTIMISER):
        pass


def _simulated(name: str) -> list[TimedSpan]:
    """A run that keeps exactly to its table."""
    schedule = build_schedule(name, micro_batches=4, device_of=(0, 1))
    found = simulate(schedule, forward_s=FORWARD_S, backward_s=BACKWARD_S, weight_share=(0.25, 0.4))
    return [
        TimedSpan(0, span.device, 1, span.action.kind.name.lower(), span.action, span.start_s, span.end_s)
        for span in found.timeline
    ]


def test_only_the_wanted_updates_are_recorded_and_waited_for() -> None:
    calls: list[str] = []
    recorder = _recorder(range(1, 3), calls=calls)
    _update(recorder, 0)
    assert (recorder.spans, calls) == ([], [])
    before_s = time.time()
    for update in (1, 2, 3):
        _update(recorder, update)
    assert [(span.update, span.what, span.action) for span in recorder.spans] == [
        (1, "forward", STEP),
        (1, "optimiser update", None),
        (2, "forward", STEP),
        (2, "optimiser update", None),
    ]
    assert len(calls) == 2 * 3
    first = recorder.spans[0]
    assert (first.replica, first.device) == (1, 2)
    assert first.seconds >= 0.002
    # By the clock on the wall, which other hosts have too.
    assert before_s - 0.1 < first.start_s < time.time() + 0.1


def test_several_observers_see_the_same() -> None:
    recorders = [_recorder(range(5)), _recorder(range(5))]
    _update(all_of(recorders), 1)
    assert [span.what for span in recorders[0].spans] == [span.what for span in recorders[1].spans]
    assert len(recorders[0].spans) == 2
    assert all_of([]) is None
    assert all_of(recorders[:1]) is recorders[0]
    _update(None, 1)


@pytest.mark.parametrize("name", ["sequential", "1f1b", "gpipe", "zero-bubble"])
def test_a_run_that_keeps_to_its_table_has_the_simulators_bubble(name: str) -> None:
    spans = _simulated(name)
    schedule = build_schedule(name, micro_batches=4, device_of=(0, 1))
    expected = simulate(schedule, forward_s=FORWARD_S, backward_s=BACKWARD_S, weight_share=(0.25, 0.4))
    measured = measure_steps(spans, devices=2)
    assert measured.bubble == pytest.approx(expected.bubble)
    assert measured.seconds == pytest.approx(expected.seconds_per_update)
    replayed = replay(spans, schedule, edges=chain(2))
    assert replayed.bubble == pytest.approx(expected.bubble)
    assert replayed.seconds_per_update == pytest.approx(expected.seconds_per_update)


def test_waits_are_idle_and_the_rest_of_the_update_is_no_pass() -> None:
    spans = [
        TimedSpan(0, 0, 1, "wait", STEP, 0.0, 2.0),
        TimedSpan(0, 0, 1, "data", STEP, 2.0, 3.0),
        TimedSpan(0, 0, 1, "forward", STEP, 3.0, 5.0),
        TimedSpan(0, 0, 1, "wait", STEP, 5.0, 6.0),
        TimedSpan(0, 0, 1, "send", STEP, 6.0, 7.0),
        TimedSpan(0, 0, 1, "optimiser update", None, 7.0, 50.0),
    ]
    measured = measure_steps(spans, devices=1)
    assert measured.seconds == 5.0
    assert measured.bubble == pytest.approx(1 / 5)
    assert measure_steps(spans, devices=2).bubble == pytest.approx(6 / 10)


def test_the_mean_is_over_replicas_and_updates() -> None:
    spans = [
        TimedSpan(0, 0, 1, "forward", STEP, 0.0, 2.0),
        TimedSpan(1, 0, 1, "forward", STEP, 10.0, 11.0),
        TimedSpan(1, 0, 1, "backward", STEP, 13.0, 14.0),
    ]
    measured = measure_steps(spans, devices=1)
    assert (measured.seconds, measured.bubble) == (3.0, 0.25)


def test_a_trace_has_a_process_for_each_replica_and_a_row_for_each_device() -> None:
    spans = [
        TimedSpan(0, 1, 4, "forward", STEP, 100.0, 100.5),
        TimedSpan(1, 0, 4, "gradient sum", None, 100.25, 100.5),
    ]
    trace = chrome_trace(spans, facts={"bubble": 0.5})
    names = [event["args"]["name"] for event in trace["traceEvents"] if event["ph"] == "M"]
    assert names == ["replica 0", "replica 1", "device 1", "device 0"]
    events = [event for event in trace["traceEvents"] if event["ph"] == "X"]
    assert events[0] == {
        "ph": "X",
        "name": "forward F3@0",
        "cat": "forward",
        "pid": 0,
        "tid": 1,
        "ts": 0.0,
        "dur": 500000.0,
        "args": {"update": 4, "stage": 0, "micro_batch": 3},
    }
    assert (events[1]["ts"], events[1]["args"]) == (250000.0, {"update": 4})
    assert trace["otherData"] == {"bubble": 0.5}
    assert len(trace["traceEvents"]) == len(names) + len(events)


def test_memory_is_in_the_trace_where_it_was_counted() -> None:
    spans = [TimedSpan(0, 1, 4, "forward", STEP, 100.0, 100.5, 77)]
    trace = chrome_trace(spans, facts={}, memory=[MemoryStep(0, 1, 100.5, 101.0, 77)])
    span, counter = (event for event in trace["traceEvents"] if event["ph"] != "M")
    assert span["args"] == {"update": 4, "stage": 0, "micro_batch": 3, "memory_bytes": 77}
    assert counter == {
        "ph": "C",
        "name": "memory of device 1",
        "pid": 0,
        "ts": 500000.0,
        "args": {"bytes": 77},
    }


def test_a_recorder_counts_memory_at_each_end() -> None:
    counts = iter((10, 20))
    recorder = TimelineRecorder(
        range(1), replica=0, devices=[2], synchronise=lambda: None, memory=lambda: next(counts)
    )
    _update(recorder, 0)
    assert [span.memory_bytes for span in recorder.spans] == [10, 20]
    silent = _recorder(range(1))
    _update(silent, 0)
    assert [span.memory_bytes for span in silent.spans] == [None, None]


def test_only_a_pass_itself_is_one() -> None:
    whats = ("data", "wait", "forward", "send", "backward")
    spans = [TimedSpan(0, 0, 1, what, STEP, 0.0, 1.0) for what in whats]
    assert [span.what for span in spans if span.is_pass] == ["forward"]
    assert not TimedSpan(0, 0, 1, "optimiser update", None, 0.0, 1.0).is_pass
