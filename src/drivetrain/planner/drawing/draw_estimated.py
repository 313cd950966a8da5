"""The pictures of a plan with its estimate."""

from pathlib import Path

from drivetrain.planner.drawing.draw_plan import draw_plan
from drivetrain.planner.drawing.estimated_passes import estimated_passes
from drivetrain.planner.planned import EstimatedPlan

__all__ = ["draw_estimated"]


def draw_estimated(estimated: EstimatedPlan, folder: Path) -> str:
    """Writes the pictures of the planned update into a folder; returns a sentence about them."""
    estimate, outline = estimated.estimate, estimated.planned.outline
    written = draw_plan(
        outline,
        folder,
        times=estimated_passes(outline, estimate),
        memory=estimated.memory.prediction,
        limit_bytes=None if estimate.target.is_cpu else estimate.target.memory_bytes,
    )
    return f"pictures: {written}"
