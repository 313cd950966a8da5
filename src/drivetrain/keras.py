"""Keras models on several devices: the scope around an unchanged script, and stages for its layers."""

from enum import Enum

from drivetrain.keras_fit.scope import scope
from drivetrain.pipeline.cutting.marks import stage

__all__ = ["Grouped", "Interleaved", "PipelineSchedule", "PipelineStage", "Sequential", "scope", "stage"]


class PipelineSchedule(Enum):
    """The schedules of pipeline stages; their names work as well."""

    Grouped = "grouped"
    Interleaved = "interleaved"
    Sequential = "sequential"


Grouped = PipelineSchedule.Grouped
Interleaved = PipelineSchedule.Interleaved
Sequential = PipelineSchedule.Sequential
PipelineStage = stage
