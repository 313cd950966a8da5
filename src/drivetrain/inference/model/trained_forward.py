"""The model as `predict` and `evaluate` run it: batch norms folded, and compiled if that saves time."""

from collections.abc import Callable
from time import perf_counter

import torch
from torch import Tensor, nn

from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.inference.model.fold_batch_norm import fold_where_same
from drivetrain.inference.model.optimised import build_inference
from drivetrain.inference.model.restore import TrainedRun
from drivetrain.inference.model.spread_model import SpreadModel
from drivetrain.models.from_recipe import is_own_model
from drivetrain.passes.forward import Forward, Precision, choose_precision
from drivetrain.recipe.params import CompileMode

__all__ = ["TrainedForward", "compiling_pays"]

# For a ResNet-50 on two cores, compiling saved 18 % (batches of 32) to 27 % (single images) of the time of
# the folded model, and took 10 to 40 s. Both constants are on the cautious side of that.
_COMPILING_S = 30.0
_SAVED_SHARE = 0.15
# The first call is not timed (it also warms up), so the estimate is the mean of two.
_TIMED_CALLS = 3


def compiling_pays(seconds_left: float) -> bool:
    """Whether compiling takes less time than it saves on the remaining work."""
    return seconds_left * _SAVED_SHARE > _COMPILING_S


class TrainedForward:
    """Maps preprocessed images to logits; call `refresh` after loading other weights.

    Only the first shape is compiled: another one, such as a smaller last batch, would take as long again.
    With `auto`, the caller reports after each batch how many images are done (`progress`), and the time of
    the first batches decides. `exact` keeps 16-bit results equal to the validation during training: folding
    and compiling would round differently. Models with a precision list are never folded.
    """

    def __init__(
        self, run: TrainedRun, *, reporter: Reporter, compiles: CompileMode = "auto", exact: bool = False
    ) -> None:
        self._run, self._reporter, self._mode = run, reporter, compiles
        self._precision = _precision(run, warn=reporter.warn)
        is_whole = not isinstance(run.model, SpreadModel)
        is_exact = exact and self._precision.compute_dtype != torch.float32
        self._folds = is_whole and not is_exact and run.recipe.precision_list is None
        if not is_whole and compiles == "on":
            reporter.warn("--compile on has no effect on a model whose stages run one by one.")
        if not is_whole or (is_exact and compiles == "auto"):
            self._mode = "off"
        self.refresh()

    def refresh(self) -> None:
        """Starts again with the weights that the run's model has now."""
        self._plain: Forward | None = None
        self._compiled: Forward | None = None
        self._model = self._run.model
        self._shape: torch.Size | None = None
        self._undecided = self._mode == "auto"
        self._calls, self._seconds = 0, 0.0

    def __call__(self, images: Tensor) -> Tensor:
        images = images.contiguous(memory_format=torch.channels_last)
        if self._plain is None:
            self._plain = self._build(images)
            self._shape = images.shape
            if self._mode == "on":
                self._compile()
        if self._compiled is not None and images.shape == self._shape:
            return self._run_compiled(self._compiled, images)
        return self._timed(self._plain, images) if self._undecided else self._plain(images)

    def progress(self, done: int, total: int) -> None:
        """Reports how many of all images are done; with `auto`, decides about compiling after a few calls."""
        if not self._undecided or self._calls < _TIMED_CALLS:
            return
        self._undecided = False
        # The first call is not in the sum: it also sets up what all others use.
        seconds_per_call = self._seconds / (self._calls - 1)
        seconds_left = seconds_per_call * self._calls / done * (total - done)
        if compiling_pays(seconds_left):
            self._reporter.say(
                f"compiling the model, because the remaining images would take {seconds_left:.0f} s without"
            )
            self._compile()

    def _build(self, images: Tensor) -> Forward:
        self._run.model.eval()
        # Not in inference mode: tensors created there are inference tensors, which torch.compile cannot use.
        with torch.inference_mode(mode=False), torch.no_grad():
            self._model = self._folded(images) if self._folds else self._run.model
            return build_inference(self._model, precision=self._precision)

    def _folded(self, images: Tensor) -> nn.Module:
        """The model with folded batch norms, or unchanged if folding would change its output."""
        model, why_not = fold_where_same(
            self._run.model, images[:1], precision=self._precision, is_known=self._is_ours
        )
        if why_not is not None:
            self._reporter.say(why_not)
        return model

    @property
    def _is_ours(self) -> bool:
        return is_own_model(self._run.recipe)

    def _compile(self) -> None:
        # Layers are fused only in models of this package, whose structure is known.
        self._compiled = build_inference(
            self._model, precision=self._precision, compiles=True, fuses=self._is_ours
        )

    def _run_compiled(self, compiled: Forward, images: Tensor) -> Tensor:
        try:
            logits = compiled(images)
        except Exception as error:
            self._compiled = None
            self._reporter.warn(
                f"the model runs uncompiled, because compiling failed: {describe_failure(error)}"
            )
            assert self._plain is not None
            return self._plain(images)
        # CUDA graphs reuse their output memory: the next call would overwrite these logits.
        return logits if self._run.device.is_cpu else logits.clone()

    def _timed(self, forward: Forward, images: Tensor) -> Tensor:
        device = self._run.device
        device.synchronise()
        started = perf_counter()
        logits = forward(images)
        device.synchronise()
        if self._calls:
            self._seconds += perf_counter() - started
        self._calls += 1
        return logits


def _precision(run: TrainedRun, *, warn: Callable[[str], None]) -> Precision:
    """The precision of the run, or float32 if this device does not support it."""
    try:
        return choose_precision(run.recipe, run.device)
    except BadInputError:
        asked = f"--precision {run.recipe.precision} --half-type {run.recipe.half_type}"
        warn(f"RUN was trained with {asked}, which this device does not support; float32 is used instead.")
        return Precision(compute_dtype=torch.float32, device_type=run.device.torch_device.type)
