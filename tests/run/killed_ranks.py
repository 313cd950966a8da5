"""A training whose rank is killed at a certain moment; rank processes import it by name."""

import os
import signal
import time
from pathlib import Path
from typing import Any

from drivetrain.cluster.activity_note import ActivityNote, Doing
from drivetrain.cluster.environment import find_place
from drivetrain.recipe.load import resolve_recipe
from drivetrain.run.prepare import prepare_request
from drivetrain.run.ranks import train_as_rank
from tests.run.rank_runs import SMALL

__all__ = ["train_and_die"]

Moment = tuple[Doing, int]


def train_and_die(path: Path, options: dict[str, Any], dying: int, at: Moment, update: int) -> int:
    """One rank's training, in which rank `dying` is killed as soon as it has noted what it is at."""
    place = find_place(os.environ)
    assert place is not None
    (path.parent / f"pid-{place.rank}").write_text(str(os.getpid()))
    if place.rank == dying:
        _die(at, update=update, folder=path.parent)
    given = {**SMALL, "output_dir": str(path), **options}
    request = prepare_request(resolve_recipe(overrides=given))
    return train_as_rank(place, request, quiet=True).exit_status


def _die(at: Moment, *, update: int, folder: Path) -> None:
    turn_to, turn_to_pass = ActivityNote.turn_to, ActivityNote.turn_to_pass
    updates = [-1]

    def die() -> None:
        (folder / "killed").write_text(str(time.time()))
        os.kill(os.getpid(), signal.SIGKILL)

    def note_part(self: ActivityNote, doing: Doing, *, update: int) -> None:
        turn_to(self, doing, update=update)
        updates.append(update)

    def note_pass(self: ActivityNote, doing: Doing, stage: int, micro_batch: int) -> None:
        turn_to_pass(self, doing, stage, micro_batch)
        if (doing, micro_batch) == at and updates[-1] == update:
            die()

    ActivityNote.turn_to = note_part  # type: ignore[method-assign]
    ActivityNote.turn_to_pass = note_pass  # type: ignore[method-assign]
