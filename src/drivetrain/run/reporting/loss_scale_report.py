"""Reports dynamic loss scaling: the current scale and the number of skipped updates."""

import math
from typing import Any

import numpy as np

from drivetrain.core.errors import RunFailedError
from drivetrain.passes.loss_scale import SMALLEST_SCALE
from drivetrain.program.records import UpdateRecords

__all__ = ["check_scale", "scale_values", "skipped_in_words"]


def scale_values(records: UpdateRecords, first: int, last: int) -> dict[str, Any]:
    """Scale and skipped updates of updates first..last-1; empty without dynamic loss scaling."""
    if "skipped" not in records.columns or first >= last:
        return {}
    scale = float(records.read("loss_scale", last - 1, last)[0])
    # NaN stands for updates whose history was lost (a damaged updates.npz).
    skipped = int(np.nansum(records.read("skipped", first, last)))
    return {"loss_scale": scale, "skipped_updates": skipped}


def check_scale(records: UpdateRecords, update: int) -> None:
    """Ends a run whose gradient is not finite even with the smallest loss scale."""
    scale = scale_values(records, max(0, update - 1), update).get("loss_scale", math.inf)
    if scale < SMALLEST_SCALE:
        raise RunFailedError(
            f"the gradient is not finite at update {update} even with a loss scale of {scale:g}, and earlier "
            "updates were skipped for the same reason; try a lower --learning-rate, or --precision 32.32."
        )


def skipped_in_words(summary: dict[str, Any], *, updates: int) -> str | None:
    """A line for the end of a run."""
    if "skipped_updates" not in summary:
        return None
    return (
        f"{summary['skipped_updates']} of {updates} updates were skipped: their gradient was not finite; "
        f"the loss scale ended at {summary['loss_scale']:g}"
    )
