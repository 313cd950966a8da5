"""What of a training program can be compiled."""

from collections.abc import Iterator, Mapping
from typing import Any

from drivetrain.data.feeds.resident import ResidentFeed
from drivetrain.data.feeds.stream import StreamFeed
from drivetrain.devices.compilation import Compilable, CompiledParts
from drivetrain.optim.offloading import OffloadedOptimiser
from drivetrain.passes.model_step import ModelStep
from drivetrain.passes.whole_model import PlainPasses
from drivetrain.pipeline.runtime.stage_runner import StageRunner
from drivetrain.program.training import TrainingProgram

__all__ = ["compilable_parts"]


def compilable_parts(
    program: TrainingProgram, runners: Mapping[int, StageRunner] | None = None
) -> CompiledParts:
    """Model with loss, augmentation and optimiser; of a model that is cut, its stages alone."""
    return CompiledParts(_stages(runners) if runners else _whole(program))


def _stages(runners: Mapping[int, StageRunner]) -> Iterator[Compilable[..., Any]]:
    return (runner.call for runner in runners.values() if isinstance(runner.call, Compilable))


def _whole(program: TrainingProgram) -> Iterator[Compilable[..., Any]]:
    if isinstance(program.passes, PlainPasses) and isinstance(program.passes.step, ModelStep):
        yield program.passes.step.compilable
    if isinstance(program.feed, ResidentFeed | StreamFeed):
        yield program.feed.prepare
    # Its copies go beside the computation, on streams of their own.
    if not isinstance(program.optimiser, OffloadedOptimiser):
        yield program.move_weights
