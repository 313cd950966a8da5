"""What a rank leaves behind for the launcher."""

import pickle

import pytest

from drivetrain.ranks.activity_note import (
    ActivityNote,
    Doing,
    NamelessFile,
    make_note_file,
    own_note,
    read_note,
)
from drivetrain.ranks.rank_failure import RankFailure


@pytest.fixture
def file() -> NamelessFile:
    return make_note_file()


def test_a_rank_that_says_nothing_leaves_nothing(file: NamelessFile) -> None:
    ActivityNote(file)
    assert read_note(file) == ("", "")
    assert own_note() is None


def test_every_activity_reads_as_words(file: NamelessFile) -> None:
    note = ActivityNote(file)
    note.place("stage 2 of replica 0", stages=1)
    assert read_note(file) == ("stage 2 of replica 0", "before its first update")
    seen = set()
    for doing in Doing:
        note.turn_to(doing, update=4000000000)
        note.turn_to_pass(doing, 2**24 - 1, 2**32 - 1)
        place, activity = read_note(file)
        assert place == "stage 2 of replica 0"
        assert ("of micro-batch 4294967295 of update 4000000001" in activity) == (3 <= doing <= 6)
        assert "stage" not in activity
        seen.add(activity)
    assert len(seen) == len(Doing)


def test_a_rank_of_several_stages_names_the_one_at_work(file: NamelessFile) -> None:
    note = ActivityNote(file)
    note.place("stages 0 and 3 of replica 1", stages=2)
    note.turn_to(Doing.UPDATE, update=7)
    note.turn_to_pass(Doing.WEIGHT, 3, 5)
    assert read_note(file)[1] == (
        "during the backward pass (weights) of micro-batch 5 of update 8 in stage 3"
    )
    note.turn_to(Doing.OPTIMISER, update=7)
    assert read_note(file)[1] == "during the optimiser step of update 8"


def test_a_place_too_long_for_the_note_is_cut(file: NamelessFile) -> None:
    ActivityNote(file).place("stage " * 2000, stages=1)
    place, activity = read_note(file)
    assert place.startswith("stage stage")
    assert activity == "before its first update"


@pytest.mark.parametrize(
    ("signal_number", "expected"),
    [
        (
            9,
            "rank 2 on box (stage 2 of replica 0) was killed by SIGKILL during the pass; "
            "it left no error message.",
        ),
        (None, "rank 2 on box (stage 2 of replica 0) failed during the pass: it left no error message."),
    ],
)
def test_the_sentence_of_a_rank_that_died(signal_number: int | None, expected: str) -> None:
    failure = RankFailure(
        rank=2,
        host="box",
        time_s=0.0,
        message="it left no error message.",
        signal_number=signal_number,
        place="stage 2 of replica 0",
        activity="during the pass",
    )
    assert pickle.loads(pickle.dumps(failure)).sentence == expected
