"""A state that a broken-off collective may have spoilt is never saved."""

from collections.abc import Callable
from pathlib import Path

import pytest
from torch import nn

from drivetrain.run.loop.checkpoints import SpoiltStateError
from drivetrain.run.loop.loop import RunLoop
from drivetrain.run.shortage.recovery import Recovery
from tests.run.small_training import TrainSmall

pytestmark = pytest.mark.usefixtures("no_pictures")


@pytest.mark.parametrize("is_spoilt", [True, False])
def test_only_a_sound_state_is_saved(
    is_spoilt: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, train_small: TrainSmall
) -> None:
    def guard(_recovery: Recovery, loop: RunLoop, work: Callable[[], int]) -> int:
        loop.checkpoints.may_be_spoilt = lambda: is_spoilt
        return work()

    monkeypatch.setattr(Recovery, "guard", guard)
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

    def train() -> None:
        train_small(tmp_path / "run", model=model, max_updates=1)

    if is_spoilt:
        with pytest.raises(SpoiltStateError):
            train()
    else:
        train()
    assert [path.name for path in (tmp_path / "run" / "checkpoints").glob("*")] == (
        [] if is_spoilt else ["1"]
    )
