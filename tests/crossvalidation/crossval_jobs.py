"""What folds do in the tests of folds side by side; their processes import it by name, so it is light."""

import os
import signal
import time
from pathlib import Path

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.crossvalidation.fold_training import FoldOutcome
from drivetrain.run.stopping import listen_for_stop
from tests.deadlines import HANG_S


def note(folder: Path, fold: int, slot: int) -> FoldOutcome:
    """Notes when it began and ended."""
    (folder / f"slot-{fold}").write_text(str(slot))
    (folder / f"began-{fold}").touch()
    time.sleep(0.3)
    (folder / f"ended-{fold}").touch()
    return FoldOutcome(status="finished")


def fail(how: str) -> FoldOutcome:
    if how == "bad input":
        raise BadInputError("--model nonsense is none; try --model resnet18.")
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RunFailedError("the loss became nan")


def wait_for_stop(folder: Path, fold: int) -> FoldOutcome:
    """As a training: it ends at its next update with the status of the signal."""
    with listen_for_stop() as stop:
        (folder / f"began-{fold}").touch()
        deadline_s = time.monotonic() + HANG_S
        while not stop.made and time.monotonic() < deadline_s:
            time.sleep(0.02)
        return FoldOutcome(status="stopped", exit_status=stop.exit_status)
