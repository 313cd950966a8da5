"""How far work has come, in one line that fits."""

import pytest

from drivetrain.console.progress_line import Work, clock_time, line_on_screen, plain_line

DETAIL = "loss: 0.4321  training_dice: 0.8123  training_iou: 0.7012  images/s: 1234"


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def training(clock: Clock, *, detail: str = DETAIL) -> Work:
    """Two minutes of compiling, then 2 updates a second, of which 300 are done."""
    work = Work(name="training", total=1200, clock=clock)
    clock.now_s += 120.0
    work.move(1, detail)
    clock.now_s += 150.0
    work.move(301, detail)
    return work


def test_count_and_time_left_are_whole_in_80_columns_and_no_detail_is_cut() -> None:
    line = line_on_screen(training(Clock()), width=80)
    assert len(line) <= 80
    assert "301/1200  7:29 left" in line
    assert line.endswith("loss: 0.4321  training_dice: 0.8123")


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
def test_details_are_shown_as_far_as_there_is_room(width: int) -> None:
    line = line_on_screen(training(Clock()), width=width)
    shown = line.split(" left")[1]
    assert DETAIL.startswith(shown.strip())
    assert shown.strip() == "" or DETAIL[len(shown.strip()) :][:2] in ("", "  ")
    assert len(line) <= max(width, len("training  ----------  301/1200  7:29 left"))


def test_a_single_long_detail_loses_words_and_no_part_of_one() -> None:
    work = training(Clock(), detail="2 replicas of 4 stages interleaved with recomputation in float64")
    line = line_on_screen(work, width=80)
    assert len(line) <= 80
    assert line.endswith("2 replicas of 4 stages ...")


def test_the_pace_is_that_after_the_first_update_which_may_compile() -> None:
    clock = Clock()
    work = training(clock)
    assert work.left_s == pytest.approx((1200 - 301) / 2)
    clock.now_s += 60.0
    assert work.left_s == pytest.approx((1200 - 301) / 2 - 60)


def test_work_without_an_end_in_sight_shows_how_long_it_has_taken() -> None:
    clock = Clock()
    work = Work(name="compiling", clock=clock)
    clock.now_s += 3725.0
    assert plain_line(work) == "compiling  1:02:05 so far"
    assert line_on_screen(work, width=80).endswith("1:02:05 so far")


def test_lines_of_ascii_alone() -> None:
    assert line_on_screen(training(Clock()), width=80, ascii_only=True).isascii()


def test_names_of_several_works_are_aligned() -> None:
    works = [Work(name="training", total=3, done=1), Work(name="validating", total=3, done=1)]
    lines = [line_on_screen(work, width=80, name_width=10) for work in works]
    assert lines[0].index("1/3") == lines[1].index("1/3")


def test_times() -> None:
    assert [clock_time(seconds) for seconds in (0.4, 65.9, 3600.0)] == ["0:00", "1:05", "1:00:00"]


def test_an_expected_time_replaces_the_pace_and_runs_down() -> None:
    clock = Clock()
    work = training(clock)
    work.expect(90.0)
    assert plain_line(work).startswith("training 301/1200  1:30 left")
    clock.now_s += 60.0
    assert work.left_s == 30.0
    clock.now_s += 60.0
    assert work.left_s == 0.0
