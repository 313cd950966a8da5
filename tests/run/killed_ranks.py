"""A training whose ranks are killed at certain moments; rank processes import it by name."""

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivetrain.ranks.activity_note import ActivityNote, Doing
from drivetrain.ranks.find_place import find_place
from drivetrain.recipe.load import resolve_recipe
from drivetrain.run.rank_training import train_as_rank
from drivetrain.run.request import prepare_request
from tests.run.rank_runs import SMALL

__all__ = ["Death", "train_and_die"]


@dataclass(frozen=True, slots=True)
class Death:
    """A rank is killed as soon as it has noted that it is at this; 0 for what has no micro-batch."""

    rank: int
    doing: Doing
    update: int
    micro_batch: int = 0


def train_and_die(path: Path, options: dict[str, Any], deaths: Sequence[Death]) -> int:
    """One rank's training: at the first start and at every restart the next death comes."""
    place = find_place(os.environ)
    assert place is not None
    (path.parent / f"pid-{place.rank}").write_text(str(os.getpid()))
    for death in deaths[place.restart : place.restart + 1]:
        if place.rank == death.rank:
            _die(death, folder=path.parent)
    given = {**SMALL, "output_dir": str(path), **options}
    request = prepare_request(resolve_recipe(overrides=given))
    return train_as_rank(place, request, quiet=True).exit_status


def _die(death: Death, *, folder: Path) -> None:
    turn_to, turn_to_pass = ActivityNote.turn_to, ActivityNote.turn_to_pass
    updates = [-1]

    def die_if(doing: Doing, micro_batch: int) -> None:
        if (doing, updates[-1], micro_batch) == (death.doing, death.update, death.micro_batch):
            (folder / "killed").write_text(str(time.time()))
            os.kill(os.getpid(), signal.SIGKILL)

    def note_part(self: ActivityNote, doing: Doing, *, update: int) -> None:
        turn_to(self, doing, update=update)
        updates.append(update)
        die_if(doing, 0)

    def note_pass(self: ActivityNote, doing: Doing, stage: int, micro_batch: int) -> None:
        turn_to_pass(self, doing, stage, micro_batch)
        die_if(doing, micro_batch)

    ActivityNote.turn_to = note_part  # type: ignore[method-assign]
    ActivityNote.turn_to_pass = note_pass  # type: ignore[method-assign]
