"""The picture of an update: its boxes, numbers and legend, and the memory below them."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from drivetrain.pictures.update.picture import UpdatePicture, draw_update, update_figure
from drivetrain.pictures.update.timeline import COLOURS
from drivetrain.schedules.actions import Action, Kind, chain
from drivetrain.schedules.by_name import build_schedule
from drivetrain.schedules.pass_times import PassTimes
from drivetrain.schedules.recorded_timeline import MemoryStep, TimedSpan
from drivetrain.schedules.update_course import UpdateCourse, simulated_course


def _course(
    name: str = "1f1b",
    *,
    devices: int = 2,
    stages: int | None = None,
    micro_batches: int = 4,
    update: float = 0,
) -> UpdateCourse:
    count = stages or devices
    times = PassTimes(
        forward=(1e-3,) * count, backward=(2e-3,) * count, update=update, unit="s", source="by hand"
    )
    schedule = build_schedule(
        name, micro_batches=micro_batches, device_of=tuple(stage % devices for stage in range(count))
    )
    return simulated_course(schedule, edges=chain(count), times=times, bytes_of={})[1]


def _with_memory(course: UpdateCourse) -> UpdateCourse:
    """3 GB, then 5 GB, of which 2 GB last; device d holds d GB more."""
    steps = [
        MemoryStep(0, device, start_s, end_s, (held + device) * 10**9)
        for _, device in course.rows
        for start_s, end_s, held in ((0.0, 4e-3, 3), (4e-3, 9e-3, 5))
    ]
    return replace(course, memory=steps, lasting_bytes={device: 2 * 10**9 for _, device in course.rows})


def _figure(picture: UpdatePicture, *, with_memory: bool = False) -> Any:
    import matplotlib.pyplot as plt

    figure = update_figure(picture, with_memory=with_memory)
    plt.close(figure)
    return figure


def _boxes(axis: Any, *, row: int) -> dict[str, int]:
    """How many boxes of each colour lie in a row."""
    from matplotlib.colors import to_hex

    found: dict[str, int] = {}
    for collection in axis.collections:
        paths = collection.get_paths()
        middle = paths[0].vertices[:, 1].mean()
        if round(middle) == row:
            colour = to_hex(collection.get_facecolor()[0])
            found[colour] = found.get(colour, 0) + len(paths)
    return found


def _numbers(axis: Any, *, row: int) -> list[str]:
    return [text.get_text() for text in axis.texts if round(text.get_position()[1]) == row]


def _texts(axis: Any) -> list[str]:
    return [text.get_text() for text in axis.texts]


@pytest.mark.parametrize(
    ("name", "parts"),
    [("1f1b", ("forward", "backward")), ("zero-bubble", ("forward", "input", "weight"))],
)
def test_every_pass_is_a_box_with_its_number(name: str, parts: tuple[str, ...]) -> None:
    figure = _figure(UpdatePicture(title="a title", predicted=_course(name)))
    (axis,) = figure.axes
    assert axis.get_title() == "a title"
    assert axis.get_xlabel() == "ms"
    assert [label.get_text() for label in axis.get_yticklabels()] == ["device 0", "device 1"]
    for row in (0, 1):
        assert _boxes(axis, row=row) == {COLOURS[part]: 4 for part in parts}
        assert sorted(_numbers(axis, row=row)) == sorted("0123" * len(parts))
    assert [text.get_text() for text in figure.legends[0].get_texts()] == list(parts)


def test_boxes_lie_where_the_passes_are_and_waiting_is_empty() -> None:
    course = _course(micro_batches=1)
    waits = TimedSpan(0, 1, 0, "wait", Action(Kind.FORWARD, 1, 0), 0.0, 1e-3)
    (axis,) = _figure(UpdatePicture(title="", predicted=replace(course, spans=[*course.spans, waits]))).axes
    ends = sorted(
        (float(path.vertices[:, 0].min()), float(path.vertices[:, 0].max()))
        for collection in axis.collections
        for path in collection.get_paths()
    )
    assert [(round(start, 6), round(end, 6)) for start, end in ends] == [(0, 1), (1, 2), (2, 4), (4, 6)]
    assert axis.get_xlim() == (0, 6)


@pytest.mark.parametrize(("devices", "micro_batches"), [(1, 4), (4, 64), (16, 64)])
def test_large_and_small_updates_have_all_their_boxes(devices: int, micro_batches: int) -> None:
    (axis,) = _figure(
        UpdatePicture(title="", predicted=_course(devices=devices, micro_batches=micro_batches))
    ).axes
    for row in range(devices):
        assert sum(_boxes(axis, row=row).values()) == 2 * micro_batches
        # Backward passes are wide enough for their number in every case.
        assert set(_numbers(axis, row=row)) == {str(number) for number in range(micro_batches)}


def test_a_number_that_does_not_fit_is_left_out() -> None:
    course = _course(micro_batches=1)
    tiny = TimedSpan(0, 0, 0, "forward", Action(Kind.FORWARD, 0, 7), 0.1, 0.1 + 1e-6)
    (axis,) = _figure(UpdatePicture(title="", predicted=replace(course, spans=[tiny, *course.spans]))).axes
    assert "7" not in _texts(axis)
    assert _boxes(axis, row=0)[COLOURS["forward"]] == 2


def test_stages_that_share_a_device_are_named() -> None:
    (axis,) = _figure(UpdatePicture(title="", predicted=_course("sequential", devices=1, stages=2))).axes
    assert {"0·0", "0·1", "3·1"} <= set(_texts(axis))


def test_relative_times_say_so_and_the_optimiser_has_a_box() -> None:
    picture = UpdatePicture(title="", predicted=_course(update=2e-3), unit="forward passes")
    (axis,) = _figure(picture).axes
    assert "by FLOPs" in axis.get_xlabel()
    assert _boxes(axis, row=1)[COLOURS["optimiser update"]] == 1


def test_a_measured_update_lies_above_its_prediction_from_the_first_pass_on() -> None:
    predicted = _course()
    measured = UpdateCourse(
        spans=[
            replica_of._replace(replica=replica, start_s=replica_of.start_s + 70, end_s=replica_of.end_s + 70)
            for replica in (0, 1)
            for replica_of in predicted.spans
        ]
    )
    (axis,) = _figure(UpdatePicture(title="", predicted=predicted, measured=measured)).axes
    assert [label.get_text() for label in axis.get_yticklabels()][3] == "replica 1, device 1"
    assert "measured above, predicted below" in axis.get_xlabel()
    for row in range(4):
        assert _boxes(axis, row=row) == {COLOURS["forward"]: 8, COLOURS["backward"]: 8}
    assert axis.get_xlim() == pytest.approx((0, 15))


def test_memory_has_a_panel_per_device_with_peak_and_limit() -> None:
    course = _with_memory(_course())
    figure = _figure(UpdatePicture(title="", predicted=course, limit_bytes=8 * 10**9), with_memory=True)
    timeline, first, second = figure.axes
    assert _texts(first) == ["peak 5 GB", "limit 8 GB"]
    assert _texts(second) == ["peak 6 GB", "limit 8 GB"]
    edge, peak, limit = second.lines
    assert list(edge.get_ydata()) == [4, 4, 6, 6]
    assert list(edge.get_xdata()) == pytest.approx([0, 4, 4, 9])
    assert list(peak.get_xdata()) == pytest.approx([6.5])
    assert list(peak.get_ydata()) == [6]
    assert list(limit.get_ydata()) == [8, 8]
    assert first.get_xlim() == timeline.get_xlim()
    assert first.get_ylabel() == "GB"
    assert not _figure(UpdatePicture(title="", predicted=course)).axes[1:]


def test_a_limit_far_above_is_only_written() -> None:
    picture = UpdatePicture(title="", predicted=_with_memory(_course()), limit_bytes=80 * 10**9)
    _, first, _ = _figure(picture, with_memory=True).axes
    assert "limit 80 GB" in _texts(first)
    assert len(first.lines) == 2
    assert first.get_ylim()[1] < 10


def test_measured_memory_is_a_line_over_the_predicted_area() -> None:
    predicted = _with_memory(_course())
    measured = replace(predicted, memory=[MemoryStep(0, 1, 1e-3, 2e-3, 7 * 10**9)], lasting_bytes={})
    picture = UpdatePicture(title="", predicted=predicted, measured=measured)
    figure = _figure(picture, with_memory=True)
    assert _texts(figure.axes[1]) == ["peak 5 GB"]
    assert _texts(figure.axes[2]) == ["peak 6 GB", "measured 7 GB"]
    assert list(figure.axes[2].lines[2].get_ydata()) == [7, 7]
    assert "memory, measured between passes" in {text.get_text() for text in figure.legends[0].get_texts()}


def test_files_are_png_and_svg_and_equal_pictures_are_equal_files(tmp_path: Path) -> None:
    picture = UpdatePicture(title="<1 & 2>", predicted=_with_memory(_course()))
    paths = [tmp_path / name for name in ("one.svg", "two.svg", "one.png")]
    draw_update(paths[:1], picture, with_memory=True)
    draw_update(paths[1:], picture, with_memory=True)
    assert paths[0].read_bytes() == paths[1].read_bytes()
    assert re.search("&lt;1 &amp; 2&gt;", paths[0].read_text())
    assert paths[2].read_bytes().startswith(b"\x89PNG")
