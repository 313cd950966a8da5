"""The injector of tests raises where its variable says, and nowhere else."""

import pytest
import torch

from drivetrain.run.loop.forced_shortage import FORCED_SHORTAGE, ShortageObserver, forced_shortage
from drivetrain.schedules.actions import Action, Kind
from drivetrain.schedules.observer import Part


def test_no_variable_no_shortage(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FORCED_SHORTAGE, raising=False)
    assert forced_shortage(rank=0, batch_size=8) is None


def test_only_on_its_rank_and_with_large_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FORCED_SHORTAGE, "rank=1 update=2 part=backward above=4")
    assert forced_shortage(rank=0, batch_size=8) is None
    assert forced_shortage(rank=1, batch_size=4) is None
    shortage = forced_shortage(rank=1, batch_size=5)
    assert shortage is not None
    observer = ShortageObserver(shortage)
    for update in (1, 2):
        observer.part_begins(update, Part.PASSES)
        observer.begins(0, Action(Kind.FORWARD, 0, 0))
        if update == 1:
            observer.begins(0, Action(Kind.BACKWARD, 0, 0))
    with pytest.raises(torch.OutOfMemoryError):
        observer.begins(0, Action(Kind.BACKWARD, 0, 0))
