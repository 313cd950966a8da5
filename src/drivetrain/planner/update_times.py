"""The times of one replica's update: in one piece, or with the times of its layers."""

from dataclasses import dataclass

from drivetrain.planner.costs import CostSource, ModelTimes

__all__ = ["UpdateTimes"]


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateTimes:
    """Seconds of an update of one replica whose devices wait for nobody.

    `passes_s` are all its micro-batches, `last_backward_s` the backward pass of the last one, `update_s` the
    optimiser step. `layers` is None if only the whole model was timed, `factor` the calibration by which
    times of single layers were multiplied.
    """

    passes_s: float
    last_backward_s: float
    update_s: float
    source: CostSource
    layers: ModelTimes | None = None
    factor: float = 1.0
    notes: tuple[str, ...] = ()
