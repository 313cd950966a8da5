"""Whether the updates of a program can be captured, and the CUDA graph that records them."""

import gc
from collections.abc import Callable
from contextlib import suppress

import torch

from drivetrain.data.feeds.micro_batch import ParcelFeed
from drivetrain.layers.float_watch import CAPTURE_OBSTACLE
from drivetrain.optim.offloading import OffloadedOptimiser
from drivetrain.passes.whole_model import PlainPasses
from drivetrain.program.capture import CapturedUpdates
from drivetrain.program.training_program import TrainingProgram
from drivetrain.recipe.schema import Recipe

__all__ = ["CudaRecorder", "capture_updates", "pieces_of"]


def capture_updates(program: TrainingProgram, recipe: Recipe) -> None:
    """Lets the program capture its updates, or keeps the reason why it cannot."""
    program.capture = None
    program.capture_reason = _obstacle(program, recipe)
    if program.capture_reason:
        return

    program.capture = CapturedUpdates(program, recorder=CudaRecorder(program.device.torch_device))


def pieces_of(program: TrainingProgram) -> str:
    """In what pieces a model runs that does not run whole."""
    is_one = program.stages is None or len(program.stages.cut.stages) == 1
    return "in parts that are computed again (--recomputation)" if is_one else "in stages"


def _obstacle(program: TrainingProgram, recipe: Recipe) -> str:
    """What stands in the way, in words that follow a colon; empty where nothing does."""
    kind = program.device.torch_device.type
    if kind == "cpu":
        return "a CPU runs its updates in a loop"
    if kind != "cuda":
        return f"only CUDA devices are known to replay updates, this is {kind}"
    if recipe.capture == "off":
        return "--capture off"
    if recipe.fp_exceptions:
        return CAPTURE_OBSTACLE
    if program.group.size > 1:
        return "ranks talk to each other inside an update"
    if not isinstance(program.passes, PlainPasses):
        return f"the model runs {pieces_of(program)}"
    if isinstance(program.mover.optimiser, OffloadedOptimiser):
        return "optimiser states lie in host memory (--optimizer-state-offloading)"
    if not isinstance(program.feed, ParcelFeed):
        return "the data come one micro-batch at a time"
    return ""


# Records what a CUDA device is given to do, as a CUDA graph.


class CudaRecorder:
    """All recordings share one pool of memory: only one of them runs at a time, and none keeps a result."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._pool = torch.cuda.graph_pool_handle()

    def warm_up(self, compute: Callable[[], None]) -> None:
        """On the stream of the recordings, so that libraries have made what they keep for a stream."""
        computing = torch.cuda.current_stream(self._device)
        self._stream.wait_stream(computing)
        with torch.cuda.stream(self._stream):
            compute()
        computing.wait_stream(self._stream)

    def record(self, compute: Callable[[], None]) -> Callable[[], None]:
        """Refused, with the error that stood in the way, where the computation needs the host."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.synchronize(self._device)
        gc.collect()
        torch.cuda.empty_cache()
        generator = self._generator()
        untouched = generator.clone_state()
        # Not torch.cuda.graph: at an error it leaves its stream current, and tells of the wrong error.
        with torch.cuda.stream(self._stream):
            # Other threads, such as the one that pins the batches of a loader, may go on meanwhile.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                compute()
                graph.capture_end()
            except BaseException:
                self._abandon(graph)
                # It still takes itself to be recorded, and would refuse to draw.
                generator.graphsafe_set_state(untouched)
                raise
        replay: Callable[[], None] = graph.replay
        return replay

    def start_over(self) -> None:
        """Recordings from now on share nothing with earlier ones, which are no longer used."""
        self._pool = torch.cuda.graph_pool_handle()

    def _generator(self) -> torch.Generator:
        index = self._device.index
        return torch.cuda.default_generators[torch.cuda.current_device() if index is None else index]

    def _abandon(self, graph: torch.cuda.CUDAGraph) -> None:
        """Ends a capture that has failed; that fails too, but puts an end to it."""
        with suppress(RuntimeError):
            graph.capture_end()
        self.start_over()
