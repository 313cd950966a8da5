"""A finished model as `predict` and `evaluate` run it: batch norm folded, compiled where that pays."""

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

# Of a ResNet-50 on two cores, compiling saved 0.18 (batches of 32) to 0.27 (single images) of the time of the
# folded model; compiling itself takes 10 to 40 s. Both are taken from the unfavourable side.
_COMPILING_S = 30.0
_SAVED_SHARE = 0.15
_TIMED_CALLS = 3


def compiling_pays(seconds_left: float) -> bool:
    """Whether compiling a model takes less time than it saves of what is left."""
    return seconds_left * _SAVED_SHARE > _COMPILING_S


class TrainedForward:
    """Prepared images to logits; `refresh` once the run's model has other weights.

    Only the shape that comes first is compiled: another one, such as the last batch, would cost as much
    again. With `auto`, whoever goes through the images says after each how many are left (`progress`), and
    the time of the first ones decides. `exact` keeps 16-bit results those of training's own validation, which
    folding and compiling would round otherwise; layers in a precision of their own stay as they are, too.
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
            reporter.warn("--compile on has no effect on a model whose stages run each by itself.")
        if not is_whole or (is_exact and compiles == "auto"):
            self._mode = "off"
        self.refresh()

    def refresh(self) -> None:
        """Takes over the weights that the run's model has now."""
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
        """Says how many of all images are through; decides `auto` as soon as their time is known."""
        if not self._undecided or self._calls < _TIMED_CALLS:
            return
        self._undecided = False
        # The first call also sets up what all others use.
        seconds_per_call = self._seconds / (self._calls - 1)
        seconds_left = seconds_per_call * self._calls / done * (total - done)
        if compiling_pays(seconds_left):
            self._reporter.say(f"compiling the model: the rest would take {seconds_left:.0f} s without")
            self._compile()

    def _build(self, images: Tensor) -> Forward:
        self._run.model.eval()
        # Weights made in inference mode could not be compiled later.
        with torch.inference_mode(mode=False), torch.no_grad():
            self._model = self._folded(images) if self._folds else self._run.model
            return build_inference(self._model, precision=self._precision)

    def _folded(self, images: Tensor) -> nn.Module:
        """The model without its batch norms; as it is where that does not compute the same."""
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
        # Layers of a model that nobody here has seen are left as they are.
        self._compiled = build_inference(
            self._model, precision=self._precision, compiles=True, fuses=self._is_ours
        )

    def _run_compiled(self, compiled: Forward, images: Tensor) -> Tensor:
        try:
            logits = compiled(images)
        except Exception as error:
            self._compiled = None
            self._reporter.warn(f"the model runs uncompiled, as compiling failed: {describe_failure(error)}")
            assert self._plain is not None
            return self._plain(images)
        # What an accelerator gives is overwritten by the next call.
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
    """The run's own; float32 where this device does not compute in it."""
    try:
        return choose_precision(run.recipe, run.device)
    except BadInputError:
        asked = f"--precision {run.recipe.precision} with --half-type {run.recipe.half_type}"
        warn(f"the run has {asked}, which does not run on this device; it is computed in float32 here.")
        return Precision(compute_dtype=torch.float32, device_type=run.device.torch_device.type)
