"""Decides whether the updates of a program can be captured, and records them as CUDA graphs."""

import gc
from collections.abc import Callable
from contextlib import suppress

import torch

from drivetrain.data.feeds.micro_batch import ParcelFeed
from drivetrain.layers.float_watch import CAPTURE_OBSTACLE
from drivetrain.optim.offloading import OffloadedOptimiser
from drivetrain.passes.whole_model import PlainPasses
from drivetrain.program.bound_objects import values_elsewhere
from drivetrain.program.capture import CapturedUpdates
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.schema import Recipe

__all__ = ["CudaRecorder", "capture_updates", "pieces_of"]


def capture_updates(program: TrainingProgram, recipe: Recipe) -> None:
    """Makes the program capture its updates, or stores the reason why it cannot."""
    program.capture = None
    program.capture_reason = _obstacle(program, recipe)
    if program.capture_reason:
        return

    program.capture = CapturedUpdates(program, recorder=CudaRecorder(program.device.torch_device))


def pieces_of(program: TrainingProgram) -> str:
    """How a model runs that does not run as a whole, in words."""
    is_one = program.stages is None or len(program.stages.cut.stages) == 1
    return "in blocks that are recomputed (--recomputation)" if is_one else "in stages"


def _obstacle(program: TrainingProgram, recipe: Recipe) -> str:
    """The reason why updates cannot be captured; empty if they can."""
    kind = program.device.torch_device.type
    if kind == "cpu":
        return "CUDA graphs need a CUDA device, this is a CPU"
    if kind != "cuda":
        return f"CUDA graphs need a CUDA device, this is {kind}"
    if recipe.capture == "off":
        return "--capture off"
    if recipe.fp_exceptions:
        return CAPTURE_OBSTACLE
    if program.group.size > 1:
        return "ranks communicate during an update"
    if not isinstance(program.passes, PlainPasses):
        return f"the model runs {pieces_of(program)}"
    if isinstance(program.mover.optimiser, OffloadedOptimiser):
        return "the optimiser state is in host memory (--optimizer-state-offloading)"
    if not isinstance(program.feed, ParcelFeed):
        return "the data loader delivers single micro-batches, not whole updates"
    elsewhere = values_elsewhere(program.model, program.device.torch_device)
    if elsewhere:
        return f"the tensor attribute {elsewhere[0]} of the model stays on the CPU and changes in every pass"
    return ""


class CudaRecorder:
    """Records CUDA graphs. They share a memory pool: only one runs at a time, and none keeps a result."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def warm_up(self, compute: Callable[[], None]) -> None:
        """Runs on the stream of the recordings: libraries allocate workspaces per stream at first use."""
        computing = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(computing)
        with torch.cuda.stream(self._stream):
            compute()
        computing.wait_stream(self._stream)

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        """Records a graph; raises RuntimeError if the computation needs the host."""
        graph = torch.cuda.CUDAGraph()
        # As torch.cuda.graph does: nothing may be freed or allocated by earlier work during the capture.
        torch.cuda.synchronize(self._device)
        gc.collect()
        torch.cuda.empty_cache()
        generator = self._generator()
        untouched = generator.clone_state()
        # Not torch.cuda.graph: after an error it leaves its stream current and raises another error from
        # capture_end, which hides the first.
        with torch.cuda.stream(self._stream):
            # In the default mode a CUDA call of any thread, such as the one that pins batches, would end the
            # capture.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                compute()
                graph.capture_end()
            except BaseException:
                self._abandon(graph)
                # After a failed capture the generator still believes it is being captured and refuses to
                # draw.
                generator.graphsafe_set_state(untouched)
                raise
        replay: Callable[[], None] = graph.replay
        return replay

    def start_over(self) -> None:
        """Takes a new memory pool; earlier recordings are no longer used."""
        self._pool = torch.cuda.graph_pool_handle()

    def _generator(self) -> torch.Generator:
        index = self._device.index
        return torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        """Ends a failed capture: capture_end raises again, but takes the stream out of capture mode."""
        with suppress(RuntimeError):
            graph.capture_end()
        self.start_over()
