"""The corpus: modules of a few hundred weights for images of 3 x 8 x 8 and 5 classes, one idea each."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from tests.corpus.registry import CASES, idea

__all__ = ["CASES"]

WIDTH = 4
CLASSES = 5
# The layouts that put the two ends of a net into different stages.
CUT_LAYOUTS = (
    "2 stages, zero-bubble",
    "2 stages, grouped",
    "2 stages, recomputed",
    "4 stages",
    "stages on ranks",
)


class Stem(nn.Conv2d):
    """The first layer: takes images of any type, so that a model of any type can be compared."""

    def __init__(self) -> None:
        super().__init__(3, WIDTH, 3, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        return super().forward(images.to(self.weight.dtype))


class Net(nn.Module):
    """A stem, what a subclass does in the middle, a convolution and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = Stem()
        self.tail = conv()
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, images: Tensor) -> Any:
        features = self.middle(torch.tanh(self.stem(images)))
        features = torch.tanh(self.tail(features))
        return self.head(features.mean((2, 3)))

    def middle(self, features: Tensor) -> Any:
        raise NotImplementedError


def conv(width: int = WIDTH) -> nn.Conv2d:
    return nn.Conv2d(width, width, 3, padding=1)


class Block(nn.Module):
    """A convolution and its activation."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = conv()

    def forward(self, features: Tensor) -> Any:
        return torch.tanh(self.conv(features))


class WithBlock(Net):
    """A net around one block, which most subclasses replace."""

    def __init__(self, block: nn.Module | None = None) -> None:
        super().__init__()
        self.block = block or Block()

    def middle(self, features: Tensor) -> Any:
        return self.block(features)


# Gradient mode and precision


@idea()
class Plain(WithBlock):
    """Nothing out of the ordinary."""


@idea()
class NoGradBlock(WithBlock):
    """A branch of the root is computed without gradient."""

    def middle(self, features: Tensor) -> Any:
        with torch.no_grad():
            branch = self.block(features)
        return features + branch


@idea()
class FrozenBackboneNoGrad(WithBlock):
    """Everything before the tail is computed without gradient."""

    def forward(self, images: Tensor) -> Any:
        with torch.no_grad():
            features = self.block(torch.tanh(self.stem(images)))
        return self.head(torch.tanh(self.tail(features)).mean((2, 3)))


class _NoGradForward(Block):
    @torch.no_grad()
    def forward(self, features: Tensor) -> Any:
        return super().forward(features)


@idea()
class NoGradDecorator(WithBlock):
    """A submodule whose forward is decorated with no_grad."""

    def __init__(self) -> None:
        super().__init__(_NoGradForward())

    def middle(self, features: Tensor) -> Any:
        return features + self.block(features)


class _NoGradWithin(Block):
    def forward(self, features: Tensor) -> Any:
        with torch.no_grad():
            weights = torch.softmax(self.conv(features), 1)
        return features * weights


@idea()
class NoGradInABlock(WithBlock):
    """A no_grad region inside of a block."""

    def __init__(self) -> None:
        super().__init__(_NoGradWithin())


@idea()
class EnableGradInsideNoGrad(WithBlock):
    """A gradient that is switched on again inside of no_grad."""

    def __init__(self) -> None:
        super().__init__()
        self.other = Block()

    def middle(self, features: Tensor) -> Any:
        with torch.no_grad():
            frozen = self.block(features)
            with torch.enable_grad():
                trained = self.other(features)
        return frozen + trained


@idea()
class InferenceModeBranch(WithBlock):
    """A branch in inference mode, whose copy joins the rest."""

    def middle(self, features: Tensor) -> Any:
        with torch.inference_mode():
            branch = self.block(features)
        return features + branch.clone()


@idea()
class SetGradEnabledContext(WithBlock):
    """set_grad_enabled as a context, with a condition."""

    trains_block = False

    def middle(self, features: Tensor) -> Any:
        with torch.set_grad_enabled(self.trains_block):
            branch = self.block(features)
        return features + branch


@idea(may_be_refused=True)
class SetGradEnabledCalls(WithBlock):
    """set_grad_enabled called before and after, as a function."""

    def middle(self, features: Tensor) -> Any:
        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        branch = self.block(features)
        torch.set_grad_enabled(before)
        return features + branch


@idea()
class FrozenLayer(WithBlock):
    """A block whose weights need no gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.block.requires_grad_(False)


@idea()
class FrozenBackboneEval(Net):
    """A backbone with batch norm that stays in eval mode, as fine-tuning code writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(conv(), nn.BatchNorm2d(WIDTH), nn.Tanh())
        for parameter in self.backbone.parameters():
            parameter.requires_grad = False

    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        self.backbone.eval()
        return self

    def middle(self, features: Tensor) -> Any:
        return self.backbone(features)


@idea()
class RequiresGradInForward(WithBlock):
    """A detached tensor that asks for a gradient again."""

    def middle(self, features: Tensor) -> Any:
        fresh = self.block(features).detach().requires_grad_()
        return self.block(fresh) + features


@idea(dtype="float32", scope="micro-batch")
class AutocastOff(WithBlock):
    """A block that insists on its own precision."""

    def middle(self, features: Tensor) -> Any:
        with torch.autocast("cpu", enabled=False):
            branch = self.block(features.float())
        return features + branch


@idea(dtype="float32", scope="micro-batch")
class AutocastOn(WithBlock):
    """A block that computes in bfloat16."""

    def middle(self, features: Tensor) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            branch = self.block(features)
        return features + branch.float()


class _AutocastDecorated(Block):
    @torch.autocast("cpu", dtype=torch.bfloat16)  # type: ignore[misc]
    def forward(self, features: Tensor) -> Any:
        return super().forward(features)


@idea(dtype="float32", scope="micro-batch")
class AutocastDecorator(WithBlock):
    """A submodule whose forward is decorated with autocast."""

    def __init__(self) -> None:
        super().__init__(_AutocastDecorated())

    def middle(self, features: Tensor) -> Any:
        return features + self.block(features).float()


@idea()
class Detach(WithBlock):
    """A branch that is cut off from the gradient."""

    def middle(self, features: Tensor) -> Any:
        return features + self.block(features.detach())


# Activation checkpointing in user code: the same bits as without


class _Checkpointed(Net):
    """Runs its layers through torch.utils.checkpoint, or directly as its twin."""

    reentrant = False

    def __init__(self, *layers: nn.Module, checkpoints: bool = True) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)
        self.checkpoints = checkpoints

    def middle(self, features: Tensor) -> Any:
        if not self.checkpoints:
            return self.layers(features)
        return checkpoint(self.layers, features, use_reentrant=self.reentrant)


@idea(twin=lambda: CheckpointPlain(checkpoints=False), may_be_refused=True)
class CheckpointPlain(_Checkpointed):
    """A checkpoint around plain layers."""

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__(conv(), nn.Tanh(), checkpoints=checkpoints)


@idea(twin=lambda: CheckpointReentrant(checkpoints=False), may_be_refused=True)
class CheckpointReentrant(_Checkpointed):
    """The reentrant kind of checkpoint around plain layers."""

    reentrant = True

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__(conv(), nn.Tanh(), checkpoints=checkpoints)


@idea(draws=True, twin=lambda: CheckpointDropout(checkpoints=False), may_be_refused=True)
class CheckpointDropout(_Checkpointed):
    """A checkpoint around dropout."""

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__(conv(), nn.Dropout(0.4), nn.Tanh(), checkpoints=checkpoints)


@idea(draws=True, twin=lambda: CheckpointReentrantDropout(checkpoints=False), may_be_refused=True)
class CheckpointReentrantDropout(_Checkpointed):
    """The reentrant kind of checkpoint around dropout."""

    reentrant = True

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__(conv(), nn.Dropout(0.4), nn.Tanh(), checkpoints=checkpoints)


@idea(scope="micro-batch", twin=lambda: CheckpointBatchNorm(checkpoints=False), may_be_refused=True)
class CheckpointBatchNorm(_Checkpointed):
    """A checkpoint around batch norm, whose statistics count once."""

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__(conv(), nn.BatchNorm2d(WIDTH), nn.Tanh(), checkpoints=checkpoints)


@idea(draws=True, twin=lambda: CheckpointSharedDropout(checkpoints=False), may_be_refused=True)
class CheckpointSharedDropout(Net):
    """Two checkpoints that share one dropout layer, which is also used outside."""

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__()
        self.first, self.second, self.drop = conv(), conv(), nn.Dropout(0.3)
        self.checkpoints = checkpoints

    def _with_drop(self, layer: nn.Module, features: Tensor) -> Any:
        def run(values: Tensor) -> Any:
            return self.drop(torch.tanh(layer(values)))

        return checkpoint(run, features, use_reentrant=False) if self.checkpoints else run(features)

    def middle(self, features: Tensor) -> Any:
        features = self._with_drop(self.first, features)
        return self.drop(self._with_drop(self.second, features))


@idea(
    scope="micro-batch",
    draws=True,
    twin=lambda: CheckpointFunctionalDropout(checkpoints=False),
    may_be_refused=True,
)
class CheckpointFunctionalDropout(WithBlock):
    """A checkpoint around a draw from torch's generator."""

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__()
        self.checkpoints = checkpoints

    def _dropped(self, features: Tensor) -> Any:
        return functional.dropout(self.block(features), 0.4, self.training)

    def middle(self, features: Tensor) -> Any:
        if not self.checkpoints:
            return self._dropped(features)
        return checkpoint(self._dropped, features, use_reentrant=False)


class _CheckpointBlock(Block):
    def __init__(self, *, checkpoints: bool) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.3)
        self.checkpoints = checkpoints

    def _run(self, features: Tensor) -> Any:
        return self.drop(torch.tanh(self.conv(features)))

    def forward(self, features: Tensor) -> Any:
        if not self.checkpoints:
            return self._run(features)
        return checkpoint(self._run, features, use_reentrant=False)


@idea(draws=True, twin=lambda: CheckpointInABlock(checkpoints=False))
class CheckpointInABlock(WithBlock):
    """Blocks that recompute themselves, as large models write it."""

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__(
            nn.Sequential(
                _CheckpointBlock(checkpoints=checkpoints), _CheckpointBlock(checkpoints=checkpoints)
            )
        )


@idea(draws=True, twin=lambda: CheckpointSequential(checkpoints=False), may_be_refused=True)
class CheckpointSequential(_Checkpointed):
    """checkpoint_sequential over layers with dropout."""

    def __init__(self, *, checkpoints: bool = True) -> None:
        layers = [conv(), nn.Tanh(), conv(), nn.Dropout(0.3), nn.Tanh()]
        super().__init__(*layers, checkpoints=checkpoints)

    def middle(self, features: Tensor) -> Any:
        if not self.checkpoints:
            return self.layers(features)
        return checkpoint_sequential(self.layers, 2, features, use_reentrant=False)  # type: ignore[no-untyped-call]


# Hooks


def _scale_output(_module: nn.Module, _inputs: Any, output: Any) -> Any:
    return output * 1.5


def _scale_output_with_kwargs(_module: nn.Module, _args: Any, _kwargs: Any, output: Any) -> Any:
    return output * 0.5


def _scale_input(_module: nn.Module, inputs: tuple[Any, ...]) -> Any:
    return (inputs[0] * 2 - 1,)


def _scale_input_with_kwargs(_module: nn.Module, args: tuple[Any, ...], kwargs: Any) -> Any:
    return (args[0] * 2 - 1,), kwargs


def _double_gradients(_module: nn.Module, inputs: tuple[Any, ...], _outputs: Any) -> Any:
    return tuple(None if gradient is None else gradient * 2 for gradient in inputs)


def _double_output_gradients(_module: nn.Module, outputs: tuple[Any, ...]) -> Any:
    return tuple(None if gradient is None else gradient * 2 for gradient in outputs)


def _halve(gradient: Tensor) -> Tensor:
    return gradient * 0.5


@torch.no_grad()
def _clear_first_row(parameter: Tensor) -> None:
    assert parameter.grad is not None
    parameter.grad[0].zero_()


@idea()
class RootForwardHook(WithBlock):
    """A forward hook on the whole model that changes its output."""

    def __init__(self) -> None:
        super().__init__()
        self.register_forward_hook(_scale_output)


@idea()
class RootForwardHookWithKwargs(WithBlock):
    """The same, with keyword arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.register_forward_hook(_scale_output_with_kwargs, with_kwargs=True)


@idea()
class RootPreHook(WithBlock):
    """A forward pre-hook on the whole model that changes the images."""

    def __init__(self) -> None:
        super().__init__()
        self.register_forward_pre_hook(_scale_input)


@idea()
class RootPreHookWithKwargs(WithBlock):
    """The same, with keyword arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.register_forward_pre_hook(_scale_input_with_kwargs, with_kwargs=True)


@idea()
class RootBackwardHook(WithBlock):
    """A backward pre-hook on the whole model that scales the gradient of its output."""

    def __init__(self) -> None:
        super().__init__()
        self.register_full_backward_pre_hook(_double_output_gradients)


@idea(split="layers.2", may_be_refused=True)
class ContainerHook(Net):
    """A forward hook on a Sequential."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(conv(), nn.Tanh(), conv(), nn.Tanh())
        self.layers.register_forward_hook(_scale_output)

    def middle(self, features: Tensor) -> Any:
        return self.layers(features)


@idea(split="layers.2", may_be_refused=True)
class ContainerPreHook(Net):
    """A forward pre-hook on a Sequential."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(conv(), nn.Tanh(), conv(), nn.Tanh())
        self.layers.register_forward_pre_hook(_scale_input)

    def middle(self, features: Tensor) -> Any:
        return self.layers(features)


@idea()
class BlockHook(WithBlock):
    """Forward hooks on a block of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        self.block.register_forward_pre_hook(_scale_input_with_kwargs, with_kwargs=True)
        self.block.register_forward_hook(_scale_output_with_kwargs, with_kwargs=True)


@idea()
class LeafHook(WithBlock):
    """Forward hooks on a layer of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.tail.register_forward_pre_hook(_scale_input)
        self.tail.register_forward_hook(_scale_output)


@idea(may_be_refused=True)
class HookThatCollects(WithBlock):
    """A hook that keeps the features of one layer, which another layer reads."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Tensor] = []
        self.block.register_forward_hook(self._keep)

    def _keep(self, _module: nn.Module, _inputs: Any, output: Tensor) -> None:
        self.kept.append(output)

    def forward(self, images: Tensor) -> Any:
        features = self.block(torch.tanh(self.stem(images)))
        features = torch.tanh(self.tail(features)) + self.kept.pop()
        return self.head(features.mean((2, 3)))


@idea()
class HookThatCounts(WithBlock):
    """A hook that counts passes in Python; nothing depends on the count."""

    def __init__(self) -> None:
        super().__init__()
        self.counts = [0]
        self.tail.register_forward_hook(self._count)

    def _count(self, _module: nn.Module, _inputs: Any, _output: Tensor) -> None:
        self.counts[0] += 1


class _CountingLeaf(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.calls = 0
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, features: Tensor) -> Any:
        self.calls += 1
        return features * self.scale


@idea(scope="call", may_be_refused=True)
class ReadsACounterElsewhere(WithBlock):
    """The code of the root reads a number that another module counts up."""

    def __init__(self) -> None:
        super().__init__(_CountingLeaf())

    def middle(self, features: Tensor) -> Any:
        counting: Any = self.block
        return counting(features) * (1 + 0.1 * counting.calls)


@idea()
class FullBackwardHook(WithBlock):
    """A full backward hook on a block that scales the gradient of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.block.register_full_backward_hook(_double_gradients)


@idea()
class BackwardPreHook(WithBlock):
    """A backward pre-hook on a block that scales the gradient of its output."""

    def __init__(self) -> None:
        super().__init__()
        self.block.register_full_backward_pre_hook(_double_output_gradients)


@idea()
class LeafBackwardHook(WithBlock):
    """A full backward hook on a layer of torch."""

    def __init__(self) -> None:
        super().__init__()
        self.tail.register_full_backward_hook(_double_gradients)


@idea(split="layers.2", may_be_refused=True)
class ContainerBackwardHook(Net):
    """A full backward hook on a Sequential."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(conv(), nn.Tanh(), conv(), nn.Tanh())
        self.layers.register_full_backward_hook(_double_gradients)

    def middle(self, features: Tensor) -> Any:
        return self.layers(features)


@idea()
class ParameterHook(WithBlock):
    """A hook on a weight that scales its gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.tail.weight.register_hook(_halve)  # type: ignore[no-untyped-call]


@idea()
class PostAccumulateHook(WithBlock):
    """A hook that clears a part of a gradient once it is added up."""

    def __init__(self) -> None:
        super().__init__()
        self.tail.weight.register_post_accumulate_grad_hook(_clear_first_row)  # type: ignore[no-untyped-call]


@idea(may_be_refused=True)
class TensorHook(WithBlock):
    """A hook on an activation, set in forward, that scales its gradient."""

    def middle(self, features: Tensor) -> Any:
        outputs = self.block(features)
        if outputs.requires_grad:
            outputs.register_hook(_halve)
        return outputs


# Complex numbers


@idea()
class FftRoundTrip(WithBlock):
    """A block behind a Fourier transform and its inverse."""

    def middle(self, features: Tensor) -> Any:
        spectrum = torch.fft.rfft2(features)
        return self.block(torch.fft.irfft2(spectrum, s=features.shape[-2:]))


class _SpectralFilter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gains = nn.Parameter(torch.randn(WIDTH, 8, 5))
        self.turns = nn.Parameter(torch.randn(WIDTH, 8, 5))

    def forward(self, spectrum: Tensor) -> Any:
        return spectrum * torch.complex(self.gains, self.turns)


@idea(split="filters.2")
class ComplexBetweenBlocks(Net):
    """Complex values between several blocks, so that a cut falls between them."""

    def __init__(self) -> None:
        super().__init__()
        self.filters = nn.ModuleList(_SpectralFilter() for _ in range(4))

    def middle(self, features: Tensor) -> Any:
        spectrum = torch.fft.rfft2(features, norm="ortho")
        for layer in self.filters:
            spectrum = layer(spectrum)
        return torch.fft.irfft2(spectrum, s=(8, 8), norm="ortho")


class _ComplexFilter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.gains = nn.Parameter(torch.randn(WIDTH, 8, 5, dtype=torch.complex64))

    def forward(self, features: Tensor) -> Any:
        return torch.fft.irfft2(torch.fft.rfft2(features) * self.gains, s=(8, 8))


@idea(may_be_refused=True)
class ComplexParameter(WithBlock):
    """A weight that is itself complex."""

    def __init__(self) -> None:
        super().__init__(_ComplexFilter())


@idea()
class ComplexAsReal(WithBlock):
    """The real and imaginary parts of a spectrum as channels."""

    def middle(self, features: Tensor) -> Any:
        spectrum = torch.view_as_real(torch.fft.fft(features))
        return self.block(spectrum[..., 0]) + spectrum[..., 1]


# State that a pass changes


class _CountingInPlace(Block):
    passes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("passes", torch.zeros(()))

    def forward(self, features: Tensor) -> Any:
        self.passes += 1
        return super().forward(features) / self.passes


@idea(scope="call", may_be_refused=True)
class CounterInPlace(WithBlock):
    """A buffer that counts passes in place, and what is computed depends on it."""

    def __init__(self) -> None:
        super().__init__(_CountingInPlace())


class _CountingAnew(Block):
    passes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("passes", torch.zeros((), dtype=torch.int64))

    def forward(self, features: Tensor) -> Any:
        self.passes = self.passes + 1
        return super().forward(features) / self.passes


@idea(scope="call")
class CounterAnew(WithBlock):
    """A buffer that is assigned anew at every pass."""

    def __init__(self) -> None:
        super().__init__(_CountingAnew())


@idea(scope="call", may_be_refused=True)
class CounterAtTheRoot(WithBlock):
    """A count that the root itself keeps in a buffer."""

    passes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("passes", torch.zeros(()))

    def middle(self, features: Tensor) -> Any:
        self.passes += 1
        return self.block(features) / self.passes


class _CountingInPython(Block):
    def __init__(self) -> None:
        super().__init__()
        self.passes = 0

    def forward(self, features: Tensor) -> Any:
        self.passes += 1
        return super().forward(features) / self.passes


@idea(scope="call", may_be_refused=True)
class PythonCounter(WithBlock):
    """A Python number that counts passes."""

    def __init__(self) -> None:
        super().__init__(_CountingInPython())


class _PlainTensorState(Block):
    def __init__(self) -> None:
        super().__init__()
        self.passes = torch.zeros(())

    def forward(self, features: Tensor) -> Any:
        self.passes = self.passes + 1
        return super().forward(features) / self.passes


@idea(scope="call")
class PlainTensorAttribute(WithBlock):
    """A count in a tensor that is neither a parameter nor a buffer."""

    def __init__(self) -> None:
        super().__init__(_PlainTensorState())


class _MovingCentre(Block):
    centre: Tensor

    def __init__(self, *, subtracts: bool) -> None:
        super().__init__()
        self.register_buffer("centre", torch.zeros(WIDTH, 1, 1))
        self.subtracts = subtracts

    def forward(self, features: Tensor) -> Any:
        outputs = super().forward(features)
        if self.training:
            with torch.no_grad():
                self.centre.lerp_(outputs.mean((0, 2, 3)).view(-1, 1, 1), 0.1)
        return outputs - self.centre if self.subtracts else outputs


@idea(scope="call")
class MovingCentre(WithBlock):
    """A moving average of features, which is subtracted from them."""

    def __init__(self) -> None:
        super().__init__(_MovingCentre(subtracts=True))


@idea(scope="call")
class MovingCentreUnused(WithBlock):
    """A moving average of features that only evaluation would read."""

    def __init__(self) -> None:
        super().__init__(_MovingCentre(subtracts=False))


class _LastSeen(Block):
    seen: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(WIDTH))

    def forward(self, features: Tensor) -> Any:
        self.seen.copy_(features.detach().amax((0, 2, 3)))
        return super().forward(features)


@idea(scope="call")
class BufferOfSamples(WithBlock):
    """A buffer with the largest features of the last pass."""

    def __init__(self) -> None:
        super().__init__(_LastSeen())


class _Unsaved(Block):
    passes: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("passes", torch.zeros(()), persistent=False)

    def forward(self, features: Tensor) -> Any:
        self.passes.add_(1)
        return super().forward(features) / self.passes


@idea(scope="call", may_be_refused=True)
class CounterThatIsNotSaved(WithBlock):
    """A count in a buffer that state_dict leaves out."""

    def __init__(self) -> None:
        super().__init__(_Unsaved())


class _Clamping(Block):
    def forward(self, features: Tensor) -> Any:
        with torch.no_grad():
            self.conv.weight.clamp_(-0.1, 0.1)
        return super().forward(features)


@idea(may_be_refused=True)
class ClampedParameter(WithBlock):
    """A pass limits the weights of its layer in place."""

    def __init__(self) -> None:
        super().__init__(_Clamping())


@idea(scope="call")
class SpectralNorm(WithBlock):
    """Spectral norm as a parametrization: each pass improves its estimate."""

    def __init__(self) -> None:
        super().__init__()
        parametrizations.spectral_norm(self.tail)


@idea(scope="call")
class SpectralNormHook(WithBlock):
    """Spectral norm as a pre-hook, the older way."""

    def __init__(self) -> None:
        super().__init__()
        torch.nn.utils.spectral_norm(self.tail)


class _ExtraState(Block):
    def __init__(self) -> None:
        super().__init__()
        self.note = torch.ones(2)

    def get_extra_state(self) -> Tensor:
        return self.note

    def set_extra_state(self, state: Tensor) -> None:
        self.note = state


@idea(may_be_refused=True)
class ExtraState(WithBlock):
    """A module that saves a tensor of its own."""

    def __init__(self) -> None:
        super().__init__(_ExtraState())


# Draws that are not torch's


class _Drawing(Net):
    """Draws before the tail and behind it, so that a cut falls between two draws."""

    def __init__(self, block: nn.Module | None = None, again: nn.Module | None = None) -> None:
        super().__init__()
        self.block = block or Block()
        self.again = again or Block()

    def forward(self, images: Tensor) -> Any:
        features = self.drawn(torch.tanh(self.stem(images)), self.block)
        features = self.drawn(torch.tanh(self.tail(features)), self.again)
        return self.head(features.mean((2, 3)))

    def drawn(self, features: Tensor, block: nn.Module) -> Any:
        return block(features)


@idea(scope="micro-batch", draws=True, may_be_refused=True)
class PythonLayerDrop(_Drawing):
    """Leaves a block out by Python's random."""

    def drawn(self, features: Tensor, block: nn.Module) -> Any:
        if self.training and random.random() < 0.5:
            return features
        return block(features)


class _LayerDropBlock(Block):
    def forward(self, features: Tensor) -> Any:
        if self.training and random.random() < 0.5:
            return features
        return super().forward(features)


@idea(scope="micro-batch", draws=True)
class PythonLayerDropInABlock(_Drawing):
    """Blocks that leave themselves out by Python's random."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(*(_LayerDropBlock() for _ in range(3))),
            nn.Sequential(*(_LayerDropBlock() for _ in range(3))),
        )


class _NumpyNoise(Block):
    def forward(self, features: Tensor) -> Any:
        noise = torch.from_numpy(np.random.normal(0.0, 0.1, tuple(features.shape)))
        return super().forward(features + noise.to(features) if self.training else features)


@idea(scope="micro-batch", draws=True)
class NumpyNoise(_Drawing):
    """Noise from numpy's global generator in a block."""

    def __init__(self) -> None:
        super().__init__(_NumpyNoise(), _NumpyNoise())


@idea(scope="micro-batch", draws=True, may_be_refused=True)
class NumpyMixingAtTheRoot(_Drawing):
    """One number from numpy's global generator weighs two branches of the root."""

    def drawn(self, features: Tensor, block: nn.Module) -> Any:
        share = float(np.random.beta(2.0, 2.0)) if self.training else 0.5
        return share * features + (1 - share) * block(features)


# Draws from torch's generator outside of known layers


class _LeafNoise(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.size = nn.Parameter(torch.tensor(0.2))

    def forward(self, features: Tensor) -> Any:
        return features + self.size * torch.rand(features.shape, device=features.device).to(features)


@idea(scope="micro-batch", draws=True)
class RandInALeaf(_Drawing):
    """torch.rand in a module without children."""

    def __init__(self) -> None:
        super().__init__(_LeafNoise(), _LeafNoise())


class _BlockNoise(Block):
    def forward(self, features: Tensor) -> Any:
        outputs = super().forward(features)
        return outputs + 0.1 * torch.randn(outputs.shape, device=outputs.device).to(outputs)


@idea(scope="micro-batch", draws=True)
class RandInABlock(_Drawing):
    """torch.randn in a block, twice in one model."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(_BlockNoise(), _BlockNoise()), nn.Sequential(_BlockNoise(), _BlockNoise())
        )


@idea(scope="micro-batch", draws=True)
class RandAtTheRoot(_Drawing):
    """torch.rand in the code of the root."""

    def drawn(self, features: Tensor, block: nn.Module) -> Any:
        return block(features + torch.rand(1, WIDTH, 1, 1, device=features.device).to(features))


@idea(scope="micro-batch", draws=True)
class RandnLike(_Drawing):
    """torch.randn_like in the code of the root."""

    def drawn(self, features: Tensor, block: nn.Module) -> Any:
        return block(features + 0.1 * torch.randn_like(features))


@idea(scope="micro-batch", draws=True)
class BernoulliInPlace(_Drawing):
    """A mask that is drawn in place in the code of the root."""

    def drawn(self, features: Tensor, block: nn.Module) -> Any:
        mask = torch.empty_like(features).bernoulli_(0.7)
        return block(features * mask)


@idea(scope="micro-batch", draws=True)
class RootFunctionalDropout(_Drawing):
    """functional.dropout in the code of the root."""

    def drawn(self, features: Tensor, block: nn.Module) -> Any:
        return functional.dropout(block(features), p=0.3, training=self.training)


class _FunctionalBlock(Block):
    def __init__(self, drop: Callable[..., Tensor]) -> None:
        super().__init__()
        self.drop = drop

    def forward(self, features: Tensor) -> Any:
        return self.drop(super().forward(features), 0.3, training=self.training)


@idea(scope="micro-batch", draws=True)
class BlockFunctionalDropout(_Drawing):
    """functional.dropout in two blocks."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(_FunctionalBlock(functional.dropout), _FunctionalBlock(functional.dropout)),
            nn.Sequential(_FunctionalBlock(functional.dropout), _FunctionalBlock(functional.dropout)),
        )


@idea(scope="micro-batch", draws=True)
class FunctionalDropout2d(_Drawing):
    """functional.dropout2d in a block."""

    def __init__(self) -> None:
        super().__init__(_FunctionalBlock(functional.dropout2d), _FunctionalBlock(functional.dropout2d))


@idea(scope="micro-batch", draws=True)
class FunctionalAlphaDropout(_Drawing):
    """functional.alpha_dropout in a block."""

    def __init__(self) -> None:
        super().__init__(
            _FunctionalBlock(functional.alpha_dropout), _FunctionalBlock(functional.alpha_dropout)
        )


@idea(scope="micro-batch", draws=True)
class FunctionalRRelu(_Drawing):
    """functional.rrelu in the code of the root."""

    def drawn(self, features: Tensor, block: nn.Module) -> Any:
        return functional.rrelu(block(features), training=self.training)


@idea(scope="micro-batch", draws=True)
class RReluLayer(_Drawing):
    """RReLU draws a slope for every element."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(conv(), nn.RReLU(), conv(), nn.RReLU()),
            nn.Sequential(conv(), nn.RReLU(), conv(), nn.RReLU()),
        )


@idea(scope="micro-batch", draws=True)
class GumbelGate(_Drawing):
    """A gate by the Gumbel softmax."""

    def drawn(self, features: Tensor, block: nn.Module) -> Any:
        scores = block(features).mean((2, 3))
        return features * functional.gumbel_softmax(scores, tau=0.5)[:, :, None, None]


@idea(scope="micro-batch", draws=True)
class RandomPermutation(_Drawing):
    """Channels in a random order."""

    def drawn(self, features: Tensor, block: nn.Module) -> Any:
        order = torch.randperm(WIDTH, device=features.device)
        return block(features[:, order])


@idea(scope="micro-batch", draws=True, may_be_refused=True)
class ShakeShake(WithBlock):
    """Two branches weighed by a draw per sample, with another draw in the backward pass."""

    def __init__(self) -> None:
        super().__init__()
        self.other = Block()

    def middle(self, features: Tensor) -> Any:
        one, other = self.block(features), self.other(features)
        forth, back = (
            torch.rand(features.size(0), 1, 1, 1, device=features.device).to(features) for _ in range(2)
        )
        mixed, through = (share * one + (1 - share) * other for share in (forth, back))
        return through + (mixed - through).detach()


class _OwnGenerator(Block):
    def __init__(self) -> None:
        super().__init__()
        self.generator = torch.Generator().manual_seed(7)

    def forward(self, features: Tensor) -> Any:
        noise = torch.rand(features.shape[1], generator=self.generator).to(features)
        return super().forward(features + 0.1 * noise.view(1, -1, 1, 1))


@idea(scope="micro-batch", draws=True, may_be_refused=True)
class OwnGenerator(_Drawing):
    """A block with a torch.Generator of its own."""

    def __init__(self) -> None:
        super().__init__(_OwnGenerator(), _OwnGenerator())


# Layers that are known to draw, by sample


@idea(draws=True)
class DropoutLayers(_Drawing):
    """nn.Dropout in two places."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(conv(), nn.Dropout(0.2), nn.Tanh(), conv(), nn.Dropout(0.4)),
            nn.Sequential(conv(), nn.Dropout(0.2), nn.Tanh(), conv(), nn.Dropout(0.4)),
        )


@idea(draws=True)
class Dropout2dLayer(_Drawing):
    """nn.Dropout2d drops whole channels."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(conv(), nn.Dropout2d(0.3)), nn.Sequential(conv(), nn.Dropout2d(0.3)))


@idea(draws=True)
class AlphaDropoutLayer(_Drawing):
    """nn.AlphaDropout behind a SELU."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(conv(), nn.SELU(), nn.AlphaDropout(0.2)),
            nn.Sequential(conv(), nn.SELU(), nn.AlphaDropout(0.2)),
        )


@idea(draws=True)
class FeatureAlphaDropoutLayer(_Drawing):
    """nn.FeatureAlphaDropout behind a SELU."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(conv(), nn.SELU(), nn.FeatureAlphaDropout(0.2)),
            nn.Sequential(conv(), nn.SELU(), nn.FeatureAlphaDropout(0.2)),
        )


@idea(draws=True)
class DropoutUsedTwice(WithBlock):
    """One dropout layer in two places."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.3)

    def middle(self, features: Tensor) -> Any:
        return self.drop(self.block(self.drop(features)))


@idea()
class DropoutNever(WithBlock):
    """A dropout layer of rate 0."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(conv(), nn.Dropout(0.0)))


@idea()
class DropoutAlways(WithBlock):
    """A dropout layer of rate 1 on a branch."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(conv(), nn.Dropout(1.0)))

    def middle(self, features: Tensor) -> Any:
        return features + self.block(features)


@idea(draws=True)
class DropoutInPlace(_Drawing):
    """A dropout layer that writes into its input."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(conv(), nn.Dropout(0.3, inplace=True), nn.Tanh()),
            nn.Sequential(conv(), nn.Dropout(0.3, inplace=True), nn.Tanh()),
        )


@idea(draws=True)
class ReadsDropoutRate(WithBlock):
    """Code that reads the rate of its dropout layer."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.25)

    def middle(self, features: Tensor) -> Any:
        dropped = self.drop(self.block(features))
        return dropped * (1 - self.drop.p) if self.drop.p > 0 and not self.drop.inplace else dropped


@idea(draws=True, split="layers.1")
class ChecksDropoutType(WithBlock):
    """Code that asks which of its layers are dropout."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([conv(), nn.Dropout(0.25), conv()])

    def middle(self, features: Tensor) -> Any:
        for layer in self.layers:
            features = features + layer(features) if isinstance(layer, nn.Dropout) else layer(features)
        return features


class _ChangedDropout(nn.Dropout):
    def forward(self, inputs: Tensor) -> Any:
        return 0.5 * super().forward(inputs)


@idea(scope="micro-batch", draws=True)
class DropoutSubclass(_Drawing):
    """A class derived from nn.Dropout with a forward of its own."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(conv(), _ChangedDropout(0.3)), nn.Sequential(conv(), _ChangedDropout(0.3))
        )


class DropPath(nn.Module):
    """Stochastic depth as timm writes it."""

    def __init__(self, drop_prob: float = 0.0, scale_by_keep: bool = True) -> None:
        super().__init__()
        self.drop_prob = drop_prob
        self.scale_by_keep = scale_by_keep

    def forward(self, x: Tensor) -> Any:
        if self.drop_prob == 0.0 or not self.training:
            return x
        keep_prob = 1 - self.drop_prob
        shape = (x.shape[0],) + (1,) * (x.ndim - 1)
        random_tensor = x.new_empty(shape).bernoulli_(keep_prob)
        if keep_prob > 0.0 and self.scale_by_keep:
            random_tensor.div_(keep_prob)
        return x * random_tensor


class _DropPathBlock(Block):
    def __init__(self, path: nn.Module) -> None:
        super().__init__()
        self.drop_path = path

    def forward(self, features: Tensor) -> Any:
        return features + self.drop_path(super().forward(features))


@idea(draws=True)
class TimmDropPath(_Drawing):
    """Residual blocks that are left out by sample, as timm writes it."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(*(_DropPathBlock(DropPath(0.4)) for _ in range(2))),
            nn.Sequential(*(_DropPathBlock(DropPath(0.4)) for _ in range(2))),
        )


def stochastic_depth(input: Tensor, p: float, mode: str, training: bool = True) -> Tensor:
    """Stochastic depth as torchvision writes it."""
    if not training or p == 0.0:
        return input
    survival_rate = 1.0 - p
    size = [input.shape[0]] + [1] * (input.ndim - 1) if mode == "row" else [1] * input.ndim
    noise = torch.empty(size, dtype=input.dtype, device=input.device)
    noise = noise.bernoulli_(survival_rate)
    if survival_rate > 0.0:
        noise.div_(survival_rate)
    return input * noise


class StochasticDepth(nn.Module):
    """The layer of it, with torchvision's names."""

    def __init__(self, p: float, mode: str) -> None:
        super().__init__()
        self.p = p
        self.mode = mode

    def forward(self, input: Tensor) -> Tensor:
        return stochastic_depth(input, self.p, self.mode, self.training)


@idea(draws=True)
class TorchvisionStochasticDepth(_Drawing):
    """Residual blocks that are left out by sample, as torchvision writes it."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(*(_DropPathBlock(StochasticDepth(0.4, "row")) for _ in range(2))),
            nn.Sequential(*(_DropPathBlock(StochasticDepth(0.4, "row")) for _ in range(2))),
        )


@idea(scope="micro-batch", draws=True)
class TorchvisionStochasticDepthOfBatches(_Drawing):
    """Residual blocks that are left out for the whole micro-batch."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(*(_DropPathBlock(StochasticDepth(0.4, "batch")) for _ in range(2))),
            nn.Sequential(*(_DropPathBlock(StochasticDepth(0.4, "batch")) for _ in range(2))),
        )


# Attention, recurrent layers and sequences


class _Tokens(Net):
    """Mixes 8 tokens of 4 numbers, the means over columns, before the tail and behind it."""

    batch_first = True

    def __init__(self) -> None:
        super().__init__()
        self.mixer, self.again = self.make_mixer(), self.make_mixer()

    def make_mixer(self) -> nn.Module:
        return nn.Dropout(0.3)

    def forward(self, images: Tensor) -> Any:
        features = self._with_tokens(torch.tanh(self.stem(images)), self.mixer)
        features = self._with_tokens(torch.tanh(self.tail(features)), self.again)
        return self.head(features.mean((2, 3)))

    def _with_tokens(self, features: Tensor, mixer: nn.Module) -> Any:
        tokens = features.mean(3).transpose(1, 2)
        tokens = tokens if self.batch_first else tokens.transpose(0, 1)
        tokens = self.mixed(tokens, mixer)
        tokens = tokens if self.batch_first else tokens.transpose(0, 1)
        return features + tokens.transpose(1, 2)[..., None]

    def mixed(self, tokens: Tensor, mixer: nn.Module) -> Any:
        return mixer(tokens)


@idea()
class AttentionPlain(_Tokens):
    """MultiheadAttention without dropout, sequence first."""

    batch_first = False

    def make_mixer(self) -> nn.Module:
        return nn.MultiheadAttention(WIDTH, 2)

    def mixed(self, tokens: Tensor, mixer: nn.Module) -> Any:
        return mixer(tokens, tokens, tokens, need_weights=False)[0]


@idea(draws=True)
class AttentionDropout(_Tokens):
    """MultiheadAttention with dropout, batch first."""

    def make_mixer(self) -> nn.Module:
        return nn.MultiheadAttention(WIDTH, 2, dropout=0.3, batch_first=True)

    def mixed(self, tokens: Tensor, mixer: nn.Module) -> Any:
        return mixer(tokens, tokens, tokens, need_weights=False)[0]


@idea(draws=True)
class AttentionDropoutSequenceFirst(_Tokens):
    """MultiheadAttention with dropout, sequence first, which also returns its weights."""

    batch_first = False

    def make_mixer(self) -> nn.Module:
        return nn.MultiheadAttention(WIDTH, 2, dropout=0.3)

    def mixed(self, tokens: Tensor, mixer: nn.Module) -> Any:
        outputs, weights = mixer(tokens, tokens, tokens)
        return outputs + weights.mean((1, 2))[:, None]


@idea(draws=True)
class EncoderLayer(_Tokens):
    """TransformerEncoderLayers with their dropouts."""

    def make_mixer(self) -> nn.Module:
        return nn.TransformerEncoderLayer(WIDTH, 2, 8, dropout=0.2, batch_first=True)


@idea(scope="micro-batch", draws=True)
class ScaledDotProductDropout(_Tokens):
    """scaled_dot_product_attention with dropout in the code of the root."""

    def make_mixer(self) -> nn.Module:
        return nn.Linear(WIDTH, 3 * WIDTH)

    def mixed(self, tokens: Tensor, mixer: nn.Module) -> Any:
        query, key, value = mixer(tokens).chunk(3, -1)
        rate = 0.3 if self.training else 0.0
        return functional.scaled_dot_product_attention(query, key, value, dropout_p=rate)


@idea(scope="micro-batch", draws=True)
class LstmDropout(_Tokens):
    """LSTMs with dropout between their layers."""

    def make_mixer(self) -> nn.Module:
        return nn.LSTM(WIDTH, WIDTH, num_layers=2, dropout=0.3, batch_first=True)

    def mixed(self, tokens: Tensor, mixer: nn.Module) -> Any:
        return mixer(tokens)[0]


@idea()
class GruPlain(_Tokens):
    """GRUs, of which the outputs and the last state are used."""

    def make_mixer(self) -> nn.Module:
        return nn.GRU(WIDTH, WIDTH, batch_first=True)

    def mixed(self, tokens: Tensor, mixer: nn.Module) -> Any:
        outputs, last = mixer(tokens)
        return outputs + last[0][:, None]


@idea(scope="micro-batch", draws=True)
class SequenceFirstDropout(_Tokens):
    """nn.Dropout on 8 tokens x samples x numbers: the samples divide the tokens."""

    batch_first = False


@idea(scope="micro-batch", draws=True)
class SequenceFirstDropoutOdd(_Tokens):
    """nn.Dropout on 7 tokens x samples x numbers: the samples do not divide the tokens."""

    batch_first = False

    def mixed(self, tokens: Tensor, mixer: nn.Module) -> Any:
        return torch.cat([mixer(tokens[:7]), tokens[7:]])


@idea(scope="micro-batch", draws=True)
class SequenceFirstDropoutAsManySamples(_Tokens):
    """nn.Dropout on as many tokens as there are samples in a micro-batch."""

    batch_first = False

    def mixed(self, tokens: Tensor, mixer: nn.Module) -> Any:
        return torch.cat([mixer(tokens[:2]), tokens[2:]])


@idea(draws=True)
class FlattenedTokensDropout(_Tokens):
    """nn.Dropout on samples and tokens in one dimension."""

    def mixed(self, tokens: Tensor, mixer: nn.Module) -> Any:
        return mixer(tokens.reshape(-1, WIDTH)).reshape(tokens.shape)


@idea(scope="micro-batch", draws=True)
class WeightDropout(WithBlock):
    """nn.Dropout on a weight, which has no samples."""

    def __init__(self) -> None:
        super().__init__()
        self.drop = nn.Dropout(0.3)
        self.mixing = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def middle(self, features: Tensor) -> Any:
        return torch.einsum("oc,nchw->nohw", self.drop(self.mixing), self.block(features))


# Shapes, layouts in memory, training mode


@idea()
class ViewFlatten(WithBlock):
    """x.view(-1, n), as tutorials write it."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(WIDTH * 16, CLASSES)

    def forward(self, images: Tensor) -> Any:
        features = functional.max_pool2d(self.block(torch.tanh(self.stem(images))), 2)
        return self.fc(features.view(-1, WIDTH * 4 * 4)) + self.head(self.tail(features).mean((2, 3)))


class _StandardisedConv(nn.Conv2d):
    def forward(self, inputs: Tensor) -> Tensor:
        flat = self.weight.view(self.out_channels, -1)
        flat = (flat - flat.mean(1, keepdim=True)) / (flat.std(1, keepdim=True) + 1e-5)
        return functional.conv2d(inputs, flat.view_as(self.weight), self.bias, padding=1)


@idea()
class WeightStandardisation(WithBlock):
    """A convolution whose weight is standardised by views."""

    def __init__(self) -> None:
        super().__init__(_StandardisedConv(WIDTH, WIDTH, 3))


@idea()
class TrainingBranchAtTheRoot(WithBlock):
    """The root takes another way in training."""

    def middle(self, features: Tensor) -> Any:
        return self.block(features) * 1.5 if self.training else self.block(features)


class _TrainingBranch(Block):
    def __init__(self) -> None:
        super().__init__()
        self.side = conv()

    def forward(self, features: Tensor) -> Any:
        outputs = super().forward(features)
        return outputs + self.side(features) if self.training else outputs


@idea()
class TrainingBranchInABlock(WithBlock):
    """A block takes another way in training."""

    def __init__(self) -> None:
        super().__init__(_TrainingBranch())


@idea(refused={"all": "in training"})
class AuxiliaryOutput(WithBlock):
    """The model returns a second output in training only."""

    def forward(self, images: Tensor) -> Any:
        outputs = super().forward(images)
        return (outputs, images.mean()) if self.training else outputs


class _Auxiliary(Block):
    def forward(self, features: Tensor) -> Any:
        outputs = super().forward(features)
        return (outputs, features) if self.training else outputs


@idea()
class AuxiliaryOfABlock(WithBlock):
    """A block returns a second output in training, which the root adds."""

    def __init__(self) -> None:
        super().__init__(_Auxiliary())

    def middle(self, features: Tensor) -> Any:
        if self.training:
            outputs, side = self.block(features)
            return outputs + 0.5 * side
        return self.block(features)


@idea()
class BranchOnStaticSize(WithBlock):
    """The root branches on the size of an image."""

    def middle(self, features: Tensor) -> Any:
        if features.shape[2] > 4 and features.size(-1) % 2 == 0:
            features = functional.avg_pool2d(features, 2)
        return self.block(features)


@idea()
class LoopOverSize(WithBlock):
    """The root loops over rows of an image."""

    def middle(self, features: Tensor) -> Any:
        rows = [features[:, :, row] * (row + 1) for row in range(features.shape[2])]
        return self.block(torch.stack(rows, 2) / 8)


@idea()
class ShapeAssert(WithBlock):
    """The root asserts a shape."""

    def middle(self, features: Tensor) -> Any:
        _, channels, height, width = features.shape
        assert channels == WIDTH, f"got {channels} channels"
        assert height == width
        return self.block(features)


@idea()
class DimensionAssert(WithBlock):
    """The root asserts a number of dimensions, in Python and by torch._assert."""

    def middle(self, features: Tensor) -> Any:
        assert features.dim() == 4
        torch._assert(features.shape[1] == WIDTH, "channels")  # type: ignore[no-untyped-call]
        return self.block(features)


@idea()
class ShapeArithmetic(WithBlock):
    """Windows whose number is computed from sizes."""

    def middle(self, features: Tensor) -> Any:
        samples, channels, height, width = features.shape
        windows = features.reshape(samples, channels, height // 2, 2, width // 2, 2)
        windows = windows.permute(0, 2, 4, 1, 3, 5).reshape(-1, channels, 2, 2)
        windows = windows - windows.mean((2, 3), keepdim=True)
        windows = windows.reshape(samples, height // 2, width // 2, channels, 2, 2)
        return self.block(windows.permute(0, 3, 1, 4, 2, 5).reshape(samples, channels, height, width))


@idea()
class DynamicIterations(WithBlock):
    """A block runs as often as an attribute says."""

    iterations = 3

    def middle(self, features: Tensor) -> Any:
        for _ in range(self.iterations):
            features = features + 0.5 * self.block(features)
        return features


# Structure


@idea(refused=dict.fromkeys(CUT_LAYOUTS, "is used by layer"))
class TiedWeights(WithBlock):
    """Two layers share a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.other = conv()
        self.other.weight = self.tail.weight

    def middle(self, features: Tensor) -> Any:
        return self.block(torch.tanh(self.other(features)))


@idea()
class TiedTransposed(Net):
    """A weight is used once as it is and once transposed."""

    def __init__(self) -> None:
        super().__init__()
        self.code = nn.Linear(WIDTH, 2, bias=False)

    def middle(self, features: Tensor) -> Any:
        code = torch.tanh(self.code(features.movedim(1, -1)))
        return functional.linear(code, self.code.weight.t()).movedim(-1, 1)


@idea()
class ModuleUsedTwice(WithBlock):
    """One block in two places."""

    def middle(self, features: Tensor) -> Any:
        return self.block(self.block(features))


@idea()
class InPlaceOperations(WithBlock):
    """Activations, sums and products in place."""

    def middle(self, features: Tensor) -> Any:
        outputs = functional.relu(2 * self.block(features), inplace=True) * 2
        outputs += features
        outputs.mul_(0.5).sub_(0.1)
        return outputs.relu_()


@idea(may_be_refused=True)
class InPlaceViews(WithBlock):
    """A part of a tensor is written through a view."""

    def middle(self, features: Tensor) -> Any:
        outputs = self.block(features).clone()
        outputs[:, :2] = outputs[:, :2] * 2
        outputs[:, 2:].mul_(features[:, 2:])
        return outputs


@idea()
class BranchSumInPlace(Net):
    """Branches that are added up in place, as RepVGG does it."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.narrow = conv(), nn.Conv2d(WIDTH, WIDTH, 1)
        self.identity = nn.Identity()
        self.act = nn.ReLU(inplace=True)

    def middle(self, features: Tensor) -> Any:
        out: Any = 0
        out += self.identity(features)
        out += self.wide(features)
        out += self.narrow(features)
        return self.act(out)


@idea()
class BranchSumOfBlocks(Net):
    """A block whose first branch is changed in place by the others."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleList([conv(), conv(), nn.Identity()])

    def middle(self, features: Tensor) -> Any:
        out = None
        for branch in self.branches:
            if out is None:
                out = branch(features)
            else:
                out += branch(features)
        return out


@idea()
class BoolSkip(WithBlock):
    """A mask of booleans goes past a block."""

    def middle(self, features: Tensor) -> Any:
        is_bright = features > 0
        return torch.where(is_bright, self.block(features), features)


@idea()
class IntSkip(WithBlock):
    """Whole numbers go past a block."""

    def middle(self, features: Tensor) -> Any:
        brightest = features.argmax(1, keepdim=True)
        return self.block(features).gather(1, brightest) + features


class _Nested(Block):
    def forward(self, features: Any) -> Any:
        first, (second, third) = features
        return super().forward(first) + second, (second, third * 0.5)


@idea()
class NestedTuples(Net):
    """Blocks that hand on nested tuples."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(_Nested(), _Nested())

    def middle(self, features: Tensor) -> Any:
        first, (second, third) = self.blocks((features, (features * 0.5, features.sum(1, keepdim=True))))
        return first + second + third


class _OfDict(Block):
    def forward(self, values: Any) -> Any:
        return {"features": super().forward(values["features"]), "skip": values["skip"]}


@idea()
class DictBetweenBlocks(Net):
    """Blocks that hand on dicts."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.Sequential(_OfDict(), _OfDict())

    def middle(self, features: Tensor) -> Any:
        values = self.blocks({"features": features, "skip": features * 0.5})
        return values["features"] + values["skip"]


class _Pair(NamedTuple):
    features: Tensor
    skip: Tensor


class _ReturnsPair(Block):
    def forward(self, features: Tensor) -> Any:
        return _Pair(super().forward(features), features)


@idea()
class NamedTupleOutput(WithBlock):
    """A block returns a named tuple."""

    def __init__(self) -> None:
        super().__init__(_ReturnsPair())

    def middle(self, features: Tensor) -> Any:
        pair = self.block(features)
        return pair.features + 0.5 * pair.skip


@dataclass
class _Record:
    features: Tensor
    skip: Tensor


class _ReturnsRecord(Block):
    def forward(self, features: Tensor) -> Any:
        return _Record(super().forward(features), features)


@idea()
class DataclassOutput(WithBlock):
    """A block returns a dataclass."""

    def __init__(self) -> None:
        super().__init__(_ReturnsRecord())

    def middle(self, features: Tensor) -> Any:
        record = self.block(features)
        return record.features + 0.5 * record.skip


@idea()
class ModuleListLoop(Net):
    """A loop over a ModuleList with a sum of all results."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def middle(self, features: Tensor) -> Any:
        total = features
        for place, block in enumerate(self.blocks):
            features = block(features)
            total = total + features / (place + 1)
        return total


@idea()
class ModuleDictLoop(Net):
    """A loop over a ModuleDict."""

    def __init__(self) -> None:
        super().__init__()
        self.branches = nn.ModuleDict({"wide": conv(), "narrow": nn.Conv2d(WIDTH, WIDTH, 1)})

    def middle(self, features: Tensor) -> Any:
        return sum(torch.tanh(branch(features)) for _, branch in self.branches.items())


@idea(may_be_refused=True)
class PlainListOfModules(WithBlock):
    """Layers in a Python list, which torch does not know."""

    def __init__(self) -> None:
        super().__init__()
        self.activations = [nn.Softplus(), nn.Tanh()]

    def middle(self, features: Tensor) -> Any:
        for activation in self.activations:
            features = activation(features)
        return self.block(features)


class _ByProperty(Block):
    @property
    def layer(self) -> nn.Module:
        return self.conv

    def forward(self, features: Tensor) -> Any:
        return torch.tanh(self.layer(features))


@idea()
class PropertySubmodule(WithBlock):
    """A block that finds its layer by a property."""

    def __init__(self) -> None:
        super().__init__(_ByProperty())


class _OverriddenCall(Block):
    def __call__(self, features: Tensor) -> Any:
        return 0.5 * super().__call__(features)


@idea()
class OverriddenCall(WithBlock):
    """A block that overrides __call__."""

    def __init__(self) -> None:
        super().__init__(_OverriddenCall())


@idea()
class DefaultArguments(WithBlock):
    """forward has further arguments with defaults."""

    def forward(self, images: Tensor, scale: float = 0.5, mask: Tensor | None = None) -> Any:
        outputs = super().forward(images) * scale
        return outputs if mask is None else outputs * mask


@idea()
class KeywordArguments(WithBlock):
    """forward takes any keyword arguments."""

    def forward(self, images: Tensor, **options: Any) -> Any:
        outputs = super().forward(images)
        return outputs * options.get("scale", 0.5)


@idea()
class AnyArguments(WithBlock):
    """forward takes any arguments."""

    def forward(self, *arguments: Any) -> Any:
        return super().forward(arguments[0])


@idea()
class PartialActivation(Net):
    """Activations that are a functools.partial and a closure."""

    def __init__(self) -> None:
        super().__init__()
        self.soften = partial(functional.leaky_relu, negative_slope=0.2)
        slope = 0.3
        self.bend: Callable[[Tensor], Tensor] = lambda values: functional.elu(values, alpha=slope)
        self.layer = conv()

    def middle(self, features: Tensor) -> Any:
        return self.bend(self.layer(self.soften(features)))


@idea()
class RootParameters(WithBlock):
    """Parameters of the root itself, one of which is None."""

    bias: Tensor | None

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((WIDTH, 1, 1), 0.1))
        self.register_parameter("bias", None)

    def middle(self, features: Tensor) -> Any:
        outputs = features + self.scale * self.block(features)
        return outputs if self.bias is None else outputs + self.bias


@idea()
class UnusedLayer(WithBlock):
    """A layer that no pass uses."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Linear(2, 2)


@idea()
class ConstantBuffers(WithBlock):
    """Buffers that nothing changes, one of them not saved."""

    mean: Tensor
    grid: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("mean", torch.rand(WIDTH, 1, 1))
        self.register_buffer("grid", torch.rand(8, 8), persistent=False)

    def middle(self, features: Tensor) -> Any:
        return self.block((features - self.mean) * self.grid)


@idea()
class ConstantsInForward(WithBlock):
    """Tensors that forward creates."""

    def middle(self, features: Tensor) -> Any:
        ramp = torch.arange(8, device=features.device, dtype=features.dtype)
        ones = torch.ones(1, WIDTH, 1, 1, device=features.device)
        fixed = torch.tensor([0.5, 1.0, 1.5, 2.0], device=features.device).view(1, -1, 1, 1)
        return self.block(features * fixed + ones * ramp / 8)


@idea()
class MaskFromShape(WithBlock):
    """A mask whose size follows from the input."""

    def middle(self, features: Tensor) -> Any:
        mask = torch.ones(features.shape[-2:], device=features.device).tril().bool()
        return self.block(features.masked_fill(mask, 0.0))


# Functions


class _Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        return inputs * 2

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return gradients[0] * 3


class _Reverse(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor) -> Tensor:
        return inputs.view_as(inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        return -0.5 * gradients[0]


@idea(may_be_refused=True)
class CustomFunction(WithBlock):
    """A function with a backward pass of its own in the code of the root."""

    def middle(self, features: Tensor) -> Any:
        return self.block(_Double.apply(features))  # type: ignore[no-untyped-call]


class _Reversing(Block):
    def forward(self, features: Tensor) -> Any:
        return super().forward(_Reverse.apply(features))  # type: ignore[no-untyped-call]


@idea()
class GradientReversal(WithBlock):
    """A block that turns its gradient round."""

    def __init__(self) -> None:
        super().__init__(_Reversing())


@idea()
class StraightThrough(WithBlock):
    """Rounded values with the gradient of those that were not rounded."""

    def middle(self, features: Tensor) -> Any:
        outputs = self.block(features)
        return outputs + (torch.round(outputs * 4) / 4 - outputs).detach()


@idea()
class EmbeddingLookup(WithBlock):
    """An embedding by the number of the brightest channel."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(WIDTH, WIDTH)

    def middle(self, features: Tensor) -> Any:
        brightest = features.mean((2, 3)).argmax(1)
        return self.block(features) + self.places(brightest)[:, :, None, None]


@idea()
class SparseEmbedding(WithBlock):
    """An embedding with sparse gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.places = nn.Embedding(WIDTH, WIDTH, sparse=True)

    def middle(self, features: Tensor) -> Any:
        return self.block(features) + self.places(features.mean((2, 3)).argmax(1))[:, :, None, None]


@idea()
class IndexSelect(WithBlock):
    """index_select, and indexing by a list."""

    def middle(self, features: Tensor) -> Any:
        order = torch.tensor([2, 0, 3, 1], device=features.device)
        return self.block(features.index_select(1, order)) + features[:, [1, 0, 3, 2]]


@idea()
class ScatterAdd(WithBlock):
    """scatter_add into a fresh tensor."""

    def middle(self, features: Tensor) -> Any:
        places = features.argsort(3)
        return self.block(torch.zeros_like(features).scatter_add(3, places, features))


@idea()
class Einsum(WithBlock):
    """An einsum with a parameter of the root."""

    def __init__(self) -> None:
        super().__init__()
        self.mixing = nn.Parameter(torch.randn(WIDTH, WIDTH))

    def middle(self, features: Tensor) -> Any:
        return self.block(torch.einsum("nchw,oc->nohw", features, self.mixing))


@idea()
class Interpolate(WithBlock):
    """Down by pooling, and up again to the size of the skip."""

    def middle(self, features: Tensor) -> Any:
        small = self.block(functional.avg_pool2d(features, 2))
        return features + functional.interpolate(small, size=features.shape[-2:], mode="bilinear")


@idea()
class PixelShuffle(Net):
    """Pixels to channels and back."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = conv(4 * WIDTH)

    def middle(self, features: Tensor) -> Any:
        return functional.pixel_shuffle(torch.tanh(self.inside(functional.pixel_unshuffle(features, 2))), 2)


@idea()
class OtherDimensions(Net):
    """A Conv1d over rows and a Conv3d over channels."""

    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Conv1d(WIDTH, WIDTH, 3, padding=1)
        self.cube = nn.Conv3d(1, 1, 3, padding=1)

    def middle(self, features: Tensor) -> Any:
        lines = torch.tanh(self.line(features.flatten(2))).view_as(features)
        return self.cube(lines.unsqueeze(1)).squeeze(1)


@idea()
class UnpoolIndices(WithBlock):
    """Max-pooling hands its indices past a block to the unpooling."""

    def middle(self, features: Tensor) -> Any:
        pooled, indices = functional.max_pool2d(features, 2, return_indices=True)
        return functional.max_unpool2d(self.block(pooled), indices, [2, 2])


@idea()
class TopK(WithBlock):
    """The largest values of each channel."""

    def middle(self, features: Tensor) -> Any:
        values, places = features.flatten(2).topk(3)
        return self.block(features) + values.mean(2)[:, :, None, None] + 0 * places.sum()


@idea()
class SortedValues(WithBlock):
    """Sorted rows."""

    def middle(self, features: Tensor) -> Any:
        ordered, _ = torch.sort(features, dim=3)
        return self.block(ordered)


@idea()
class SqueezeExcite(WithBlock):
    """Channels are weighed by their means."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.up = nn.Linear(WIDTH, 2), nn.Linear(2, WIDTH)

    def middle(self, features: Tensor) -> Any:
        features = self.block(features)
        samples, channels, _, _ = features.size()
        weights = torch.sigmoid(self.up(torch.relu(self.down(features.mean((2, 3))))))
        return features * weights.view(samples, channels, 1, 1).expand_as(features)


@idea()
class UnfoldPatches(WithBlock):
    """Patches by unfold and fold."""

    def middle(self, features: Tensor) -> Any:
        patches = functional.unfold(features, 3, padding=1)
        return self.block(functional.fold(patches * 0.2, (8, 8), 3, padding=1))


@idea()
class SpatialTransformer(WithBlock):
    """A grid that the model computes, and samples at it."""

    def __init__(self) -> None:
        super().__init__()
        self.pose = nn.Linear(WIDTH, 6)

    def middle(self, features: Tensor) -> Any:
        pose = torch.tanh(self.pose(features.mean((2, 3)))).view(-1, 2, 3)
        grid = functional.affine_grid(pose, list(features.shape), align_corners=False)
        return self.block(functional.grid_sample(features, grid, align_corners=False))


@idea()
class DtypeCasts(WithBlock):
    """Values in another type on their way."""

    def middle(self, features: Tensor) -> Any:
        narrow = self.block(features).float()
        return narrow.type_as(features) + features.to(torch.float64).to(features.dtype)


@idea()
class HalfInside(WithBlock):
    """Values that are rounded to 16 bits on their way."""

    def middle(self, features: Tensor) -> Any:
        return self.block(features.half().to(features.dtype)) + features.bfloat16().to(features.dtype)


@idea()
class ValueBranch(WithBlock):
    """A block branches on the values of its input."""

    def __init__(self) -> None:
        super().__init__(_ByValue())


class _ByValue(Block):
    def forward(self, features: Tensor) -> Any:
        outputs = super().forward(features)
        return outputs if float(features.detach().abs().max()) < 10 else outputs * 0.5


@idea(may_be_refused=True)
class ValueBranchAtTheRoot(WithBlock):
    """The root branches on the values of its input."""

    def middle(self, features: Tensor) -> Any:
        outputs = self.block(features)
        return outputs if features.detach().abs().max() < 10 else outputs * 0.5


# Normalisation


@idea(scope="micro-batch")
class BatchNormPlain(WithBlock):
    """Batch norm as it comes."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(conv(), nn.BatchNorm2d(WIDTH), nn.ReLU(inplace=True)))


class _NormAct(nn.BatchNorm2d):
    """Like BatchNormAct2d of timm: it normalises by itself, and has layers that follow."""

    def __init__(self, width: int, *, drop: float = 0.0) -> None:
        super().__init__(width)
        self.drop = nn.Dropout2d(drop) if drop else nn.Identity()
        self.act = nn.ReLU(inplace=True)

    def forward(self, features: Tensor) -> Any:
        if self.training and self.track_running_stats:
            assert self.num_batches_tracked is not None
            self.num_batches_tracked.add_(1)
        uses_batch = self.training or self.running_mean is None
        statistics, momentum = (self.running_mean, self.running_var), self.momentum or 0.0
        outputs = functional.batch_norm(
            features, *statistics, self.weight, self.bias, uses_batch, momentum, self.eps
        )
        return self.act(self.drop(outputs))


@idea(scope="micro-batch")
class BatchNormWithActivation(WithBlock):
    """A class that extends batch norm by an activation, with a forward of its own."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(conv(), _NormAct(WIDTH), conv(), _NormAct(WIDTH)))


@idea(scope="micro-batch", draws=True)
class BatchNormWithDropout(WithBlock):
    """A class that extends batch norm by a dropout and an activation."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(conv(), _NormAct(WIDTH, drop=0.5)))


class _ScaledNorm(nn.BatchNorm2d):
    def forward(self, features: Tensor) -> Any:
        return torch.tanh(super().forward(features * 2)) * 0.5


@idea(scope="micro-batch")
class BatchNormExtended(WithBlock):
    """A class whose forward calls that of batch norm."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(conv(), _ScaledNorm(WIDTH)))


@idea(scope="micro-batch", refused={"all": "momentum None"})
class BatchNormCumulative(WithBlock):
    """Batch norm with momentum None: a cumulative average."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(conv(), nn.BatchNorm2d(WIDTH, momentum=None)))


@idea(scope="micro-batch")
class BatchNormWithoutWeights(WithBlock):
    """Batch norm without weights."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(conv(), nn.BatchNorm2d(WIDTH, affine=False)))


@idea(scope="micro-batch")
class BatchNormWithoutStatistics(WithBlock):
    """Batch norm that keeps no statistics."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(conv(), nn.BatchNorm2d(WIDTH, track_running_stats=False)))


class _FrozenNorm(nn.Sequential):
    def train(self, mode: bool = True) -> Any:
        super().train(mode)
        for layer in self:
            if isinstance(layer, nn.BatchNorm2d):
                layer.eval()
        return self


@idea()
class BatchNormInEval(WithBlock):
    """Batch norm that stays in eval mode in training; its weights train."""

    def __init__(self) -> None:
        super().__init__(_FrozenNorm(conv(), nn.BatchNorm2d(WIDTH)))


@idea(scope="micro-batch")
class BatchNormShared(WithBlock):
    """One batch norm on two paths."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(WIDTH)

    def middle(self, features: Tensor) -> Any:
        return self.norm(self.block(features)) + self.norm(features * 0.5)


@idea(scope="micro-batch")
class BatchNormOfVectors(WithBlock):
    """BatchNorm1d on the means."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(WIDTH)

    def middle(self, features: Tensor) -> Any:
        return self.block(features) + self.norm(features.mean((2, 3)))[:, :, None, None]


class _FunctionalNorm(nn.Module):
    running_mean: Tensor
    running_var: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("running_mean", torch.zeros(WIDTH))
        self.register_buffer("running_var", torch.ones(WIDTH))

    def forward(self, features: Tensor) -> Any:
        return functional.batch_norm(features, self.running_mean, self.running_var, training=self.training)


@idea(scope="call")
class FunctionalBatchNorm(WithBlock):
    """functional.batch_norm with buffers of its own, which it moves itself."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(conv(), _FunctionalNorm()))


@idea()
class GroupAndLayerNorm(WithBlock):
    """Norms that look at one sample alone."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(conv(), nn.GroupNorm(2, WIDTH), conv(), nn.LayerNorm([8, 8])))


@idea(scope="micro-batch")
class InstanceNormWithStatistics(WithBlock):
    """Instance norm with running statistics."""

    def __init__(self) -> None:
        super().__init__(
            nn.Sequential(conv(), nn.InstanceNorm2d(WIDTH, affine=True, track_running_stats=True))
        )


@idea()
class WeightNorm(WithBlock):
    """Weight norm as a parametrization."""

    def __init__(self) -> None:
        super().__init__()
        parametrizations.weight_norm(self.tail)


@idea()
class WeightNormHook(WithBlock):
    """Weight norm as a pre-hook, the older way."""

    def __init__(self) -> None:
        super().__init__()
        torch.nn.utils.weight_norm(self.tail)


class _Symmetric(nn.Module):
    def forward(self, weight: Tensor) -> Any:
        return (weight + weight.flip(-1)) / 2


@idea()
class Parametrization(WithBlock):
    """A parametrization of the user's own."""

    def __init__(self) -> None:
        super().__init__()
        parametrize.register_parametrization(self.tail, "weight", _Symmetric())


@idea()
class LazyLayers(WithBlock):
    """Layers that find out their sizes at the first pass."""

    def __init__(self) -> None:
        super().__init__(nn.Sequential(nn.LazyConv2d(WIDTH, 3, padding=1), nn.Tanh()))


@idea(may_be_refused=True)
class ScriptedBlock(WithBlock):
    """A block that torch.jit has compiled."""

    def __init__(self) -> None:
        super().__init__(torch.jit.script(nn.Sequential(conv(), nn.Tanh())))


@idea(may_be_refused=True)
class ModuleMadeInForward(WithBlock):
    """A layer without weights that forward makes anew."""

    def middle(self, features: Tensor) -> Any:
        return self.block(nn.AvgPool2d(3, stride=1, padding=1)(features))


@idea()
class TorchFunctionsByName(WithBlock):
    """Functions that are looked up when they are called."""

    kind = "tanh"

    def middle(self, features: Tensor) -> Any:
        features = getattr(torch, self.kind)(features)
        return getattr(self.block(features), "sigmoid")()  # noqa: B009
