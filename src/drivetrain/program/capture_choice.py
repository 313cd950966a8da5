"""Whether the updates of a program can be captured, and by what."""

from drivetrain.data.feeds.micro_batch import ParcelFeed
from drivetrain.layers.float_watch import CAPTURE_OBSTACLE
from drivetrain.optim.offloading import OffloadedOptimiser
from drivetrain.passes.whole_model import PlainPasses
from drivetrain.program.capture import CapturedUpdates
from drivetrain.program.training import TrainingProgram
from drivetrain.recipe.schema import Recipe

__all__ = ["capture_updates", "pieces_of"]


def capture_updates(program: TrainingProgram, recipe: Recipe) -> None:
    """Lets the program capture its updates, or keeps the reason why it cannot."""
    program.capture = None
    program.capture_reason = _obstacle(program, recipe)
    if program.capture_reason:
        return
    from drivetrain.program.cuda_graph import CudaRecorder

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
    if isinstance(program.optimiser, OffloadedOptimiser):
        return "optimiser states lie in host memory (--optimizer-state-offloading)"
    if not isinstance(program.feed, ParcelFeed):
        return "the data come one micro-batch at a time"
    return ""
