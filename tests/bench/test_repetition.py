"""Repeats that disagree are pointed out, with the likely cause."""

import pytest

from drivetrain.bench.repetition import Repetition, spread_notes
from drivetrain.bench.result import Entry


def _entry(name: str, *speeds: float) -> Entry:
    return Entry(name=name, figures={}, repeats=[{"images_per_second": speed} for speed in speeds])


def _notes(*entries: Entry, warmup_steps: int = 1) -> list[str]:
    return spread_notes(entries, Repetition(warmup_steps=warmup_steps, steps=1, repeats=3))


def test_only_the_entry_whose_repeats_disagree_is_named() -> None:
    (note,) = _notes(_entry("infer batch 1", 100.0, 150.0, 120.0), _entry("infer batch 16", 100.0, 230.0))
    assert note.startswith(
        "the repeats of infer batch 16 differ by a factor of 2.3: another program uses the machine"
    )


@pytest.mark.parametrize("entry", [_entry("train"), _entry("train", 7.0), _entry("train", 2.0, 3.0)])
def test_repeats_that_agree_need_no_note(entry: Entry) -> None:
    assert _notes(entry) == []


def test_a_first_repeat_without_warm_up_explains_itself() -> None:
    (note,) = _notes(_entry("train", 1.0, 4.0, 4.0), warmup_steps=0)
    assert "the first repeat had no warm-up (--warmup-steps 3" in note
    (other,) = _notes(_entry("train", 4.0, 1.0, 4.0), warmup_steps=0)
    assert "another program uses the machine" in other
