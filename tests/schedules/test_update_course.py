"""An update over time, simulated or recorded."""

from dataclasses import replace

from drivetrain.schedules.actions import Action, Kind, chain
from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.pass_times import PassTimes
from drivetrain.schedules.recorded_timeline import MemoryStep, TimedSpan
from drivetrain.schedules.update_course import measured_course, simulated_course

TIMES = PassTimes(forward=(1.0, 1.0), backward=(2.0, 2.0), update=0.5, unit="s", source="by hand")
STEP = Action(Kind.FORWARD, 0, 0)


def test_a_simulated_update_ends_with_the_optimiser_on_all_devices() -> None:
    schedule = build_schedule("gpipe", micro_batches=1, device_of=(0, 1))
    found, course = simulated_course(schedule, edges=chain(2), times=TIMES, bytes_of={})
    assert found.seconds_per_update == 6.0
    assert [(span.device, span.what, span.start_s, span.end_s) for span in course.spans] == [
        (0, "forward", 0.0, 1.0),
        (1, "forward", 1.0, 2.0),
        (1, "backward", 2.0, 4.0),
        (0, "backward", 4.0, 6.0),
        (0, "optimiser update", 6.0, 6.5),
        (1, "optimiser update", 6.0, 6.5),
    ]
    assert (course.rows, course.origin_s, course.memory) == ([(0, 0), (0, 1)], 0.0, ())


def test_messages_take_the_time_of_their_link() -> None:
    schedule = build_schedule("gpipe", micro_batches=1, device_of=(0, 1))
    times = replace(TIMES, bytes_per_s=10.0, latency_s=0.25)
    found, _ = simulated_course(schedule, edges=chain(2), times=times, bytes_of={"stage_0": 5})
    assert found.seconds_per_update == 6.0 + 2 * (0.5 + 0.25)


def test_a_device_holds_what_was_counted_until_it_is_counted_again() -> None:
    spans = [
        TimedSpan(0, 1, 3, "data", STEP, 4.0, 5.0, 10),
        TimedSpan(0, 0, 3, "forward", STEP, 5.0, 6.0, 30),
        TimedSpan(0, 1, 3, "forward", STEP, 5.0, 7.0, 20),
        TimedSpan(0, 1, 3, "optimiser update", None, 8.0, 9.0, 5),
    ]
    course = measured_course(spans)
    assert course.memory == [MemoryStep(0, 1, 5.0, 7.0, 10), MemoryStep(0, 1, 7.0, 9.0, 20)]
    assert course.origin_s == 5.0


def test_without_counts_there_is_no_memory() -> None:
    spans = [TimedSpan(0, 0, 3, "forward", STEP, start, start + 1.0) for start in (0.0, 1.0)]
    assert measured_course(spans).memory == []
