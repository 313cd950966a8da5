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

from tests.corpus.registry import idea

WIDTH = 4
CLASSES = 5


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


@idea()
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
    @torch.autocast("cpu", dtype=torch.bfloat16)
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


@idea(twin=lambda: CheckpointPlain(checkpoints=False))
class CheckpointPlain(_Checkpointed):
    """A checkpoint around plain layers."""

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__(conv(), nn.Tanh(), checkpoints=checkpoints)


@idea(twin=lambda: CheckpointReentrant(checkpoints=False))
class CheckpointReentrant(_Checkpointed):
    """The reentrant kind of checkpoint around plain layers."""

    reentrant = True

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__(conv(), nn.Tanh(), checkpoints=checkpoints)


@idea(draws=True, twin=lambda: CheckpointDropout(checkpoints=False))
class CheckpointDropout(_Checkpointed):
    """A checkpoint around dropout."""

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__(conv(), nn.Dropout(0.4), nn.Tanh(), checkpoints=checkpoints)


@idea(draws=True, twin=lambda: CheckpointReentrantDropout(checkpoints=False))
class CheckpointReentrantDropout(_Checkpointed):
    """The reentrant kind of checkpoint around dropout."""

    reentrant = True

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__(conv(), nn.Dropout(0.4), nn.Tanh(), checkpoints=checkpoints)


@idea(scope="micro-batch", twin=lambda: CheckpointBatchNorm(checkpoints=False))
class CheckpointBatchNorm(_Checkpointed):
    """A checkpoint around batch norm, whose statistics count once."""

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__(conv(), nn.BatchNorm2d(WIDTH), nn.Tanh(), checkpoints=checkpoints)


@idea(draws=True, twin=lambda: CheckpointSharedDropout(checkpoints=False))
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


@idea(scope="micro-batch", draws=True, twin=lambda: CheckpointFunctionalDropout(checkpoints=False))
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


@idea(draws=True, twin=lambda: CheckpointSequential(checkpoints=False))
class CheckpointSequential(_Checkpointed):
    """checkpoint_sequential over layers with dropout."""

    def __init__(self, *, checkpoints: bool = True) -> None:
        layers = [conv(), nn.Tanh(), conv(), nn.Dropout(0.3), nn.Tanh()]
        super().__init__(*layers, checkpoints=checkpoints)

    def middle(self, features: Tensor) -> Any:
        if not self.checkpoints:
            return self.layers(features)
        return checkpoint_sequential(self.layers, 2, features, use_reentrant=False)


@idea(scope="call", twin=lambda: CheckpointCounter(checkpoints=False))
class CheckpointCounter(Net):
    """A checkpoint around a block that counts its passes and computes with the count."""

    def __init__(self, *, checkpoints: bool = True) -> None:
        super().__init__()
        self.block = _CountingInPlace()
        self.checkpoints = checkpoints

    def middle(self, features: Tensor) -> Any:
        if not self.checkpoints:
            return self.block(features)
        return checkpoint(self.block, features, use_reentrant=False)


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


@idea()
class ContainerHook(Net):
    """A forward hook on a Sequential."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(conv(), nn.Tanh(), conv(), nn.Tanh())
        self.layers.register_forward_hook(_scale_output)

    def middle(self, features: Tensor) -> Any:
        return self.layers(features)


@idea()
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


@idea()
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


@idea()
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
        self.tail.weight.register_hook(_halve)


@idea()
class PostAccumulateHook(WithBlock):
    """A hook that clears a part of a gradient once it is added up."""

    def __init__(self) -> None:
        super().__init__()
        self.tail.weight.register_post_accumulate_grad_hook(_clear_first_row)


@idea()
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


@idea()
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


@idea(may_be_refused=True)
class ComplexParameter(Net):
    """A weight that is itself complex."""

    def __init__(self) -> None:
        super().__init__()
        self.gains = nn.Parameter(torch.randn(WIDTH, 8, 5, dtype=torch.complex64))

    def middle(self, features: Tensor) -> Any:
        return torch.fft.irfft2(torch.fft.rfft2(features) * self.gains, s=(8, 8))


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


@idea(scope="call")
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


@idea(scope="call")
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


@idea(scope="call")
class CounterThatIsNotSaved(WithBlock):
    """A count in a buffer that state_dict leaves out."""

    def __init__(self) -> None:
        super().__init__(_Unsaved())


class _Clamping(Block):
    def forward(self, features: Tensor) -> Any:
        with torch.no_grad():
            self.conv.weight.clamp_(-0.1, 0.1)
        return super().forward(features)


@idea()
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


@idea(refused={"replicas on ranks": "get_extra_state", "stages on ranks": "get_extra_state"})
class ExtraState(WithBlock):
    """A module that saves a tensor of its own."""

    def __init__(self) -> None:
        super().__init__(_ExtraState())
