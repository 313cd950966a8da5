"""What a rank notes of its updates and of what comes between them."""

from collections.abc import Callable

import pytest

from drivetrain.ranks import activity_note
from drivetrain.ranks.activity_note import ActivityNote, Doing, make_note_file, read_note
from drivetrain.run.loop.watch import NotingObserver, noted
from drivetrain.schedules.actions import Action, Kind
from drivetrain.schedules.observer import Part


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> Callable[[], str]:
    """What this process's note says now."""
    file = make_note_file()
    monkeypatch.setattr(activity_note, "_own", ActivityNote(file))
    return lambda: read_note(file)[1]


def _observer() -> NotingObserver:
    note = activity_note.own_note()
    assert note is not None
    return NotingObserver(note)


def test_an_update_has_its_number_and_what_follows_counts_those_that_are_done(
    said: Callable[[], str],
) -> None:
    observer = _observer()
    observer.part_begins(6, Part.PASSES)
    assert said() == "at the start of update 7"
    observer.begins(0, Action(Kind.WEIGHT, 0, 3))
    assert said() == "during the backward pass (weights) of micro-batch 3 of update 7"
    observer.part_begins(6, Part.OPTIMISER)
    assert said() == "during the optimiser step of update 7"
    observer.part_ended(6, Part.OPTIMISER, start_s=0.0)
    assert said() == "after update 7"


def test_an_event_is_noted_while_it_lasts_and_where_it_fails(said: Callable[[], str]) -> None:
    with noted(Doing.VALIDATION, update=7):
        assert said() == "during the validation after update 7"
    assert said() == "after update 7"
    with pytest.raises(OSError, match="full"), noted(Doing.CHECKPOINT, update=7):
        raise OSError("full")
    assert said() == "during the checkpoint after update 7"


def test_a_process_of_its_own_notes_nothing() -> None:
    with noted(Doing.VALIDATION, update=1):
        assert activity_note.own_note() is None
