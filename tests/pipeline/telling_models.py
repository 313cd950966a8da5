"""Models whose code says more than its layers: modes of torch, hooks, complex values, checkpoint regions."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

__all__ = ["HOOKED", "MODES", "Backbone", "Body", "Counted", "Fourier", "Regions", "hooked"]


class Body(nn.Module):
    """Convolutions before and after a method that others replace."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 4, 3, padding=1)
        self.second = nn.Conv2d(4, 4, 3, padding=1)
        self.third = nn.Conv2d(4, 4, 3, padding=1)
        self.line = nn.Linear(4, 10)

    def middle(self, features: Tensor) -> Tensor:
        return torch.tanh(self.second(features))

    def forward(self, images: Tensor) -> Tensor:
        features = self.middle(torch.tanh(self.first(images)))
        features = torch.tanh(self.third(features))
        logits: Tensor = self.line(features.mean((2, 3)))
        return logits


class FrozenMiddle(Body):
    """The layers up to the middle do not train, though their weights ask for it."""

    def middle(self, features: Tensor) -> Tensor:
        with torch.no_grad():
            return torch.tanh(self.second(features)).add(1)


class FrozenSecond(Body):
    """The gradient takes a way around layers that do not train."""

    def middle(self, features: Tensor) -> Tensor:
        with torch.no_grad():
            gate = torch.sigmoid(self.second(features))
        return features * gate


class Backbone(nn.Module):
    """A submodule whose whole forward runs without gradients."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1), nn.Tanh())

    @torch.no_grad()
    def forward(self, features: Tensor) -> Tensor:
        result: Tensor = self.inner(features)
        return result


class Decorated(Body):
    def __init__(self) -> None:
        super().__init__()
        self.backbone = Backbone()

    def middle(self, features: Tensor) -> Tensor:
        result: Tensor = super().middle(features) + self.backbone(features)
        return result


class Reenabled(Body):
    """Gradients on again inside a block without them; the method is called as a function, too."""

    def middle(self, features: Tensor) -> Tensor:
        with torch.no_grad():
            scale = features.abs().amax()
            with torch.enable_grad():
                features = self.second(features)
            torch.set_grad_enabled(True)
            features = features.tanh()
            torch.set_grad_enabled(False)
            scale = scale + 1
        result: Tensor = features / scale
        return result


class Inference(Body):
    """An inference tensor must be cloned before autograd may save it."""

    def middle(self, features: Tensor) -> Tensor:
        with torch.inference_mode():
            mask = self.second(features) > 0
            level = features.mean()
        result: Tensor = features * mask.clone() + level.clone()
        return result


class InPlace(Body):
    """A change in place without gradients, which lets the gradient of its target pass."""

    def middle(self, features: Tensor) -> Tensor:
        features = features * 2
        with torch.no_grad():
            features += 1
            same = features.contiguous()
        return torch.tanh(self.second(same))


class HalfMiddle(Body):
    """One block in 16 bits, one back in the model's own type."""

    def middle(self, features: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            features = self.second(features)
            with torch.autocast("cpu", enabled=False):
                features = torch.tanh(features.float())
        return features


class WideMiddle(Body):
    """A block that stays in float32 whatever the precision of the model; the device is that of a tensor."""

    def middle(self, features: Tensor) -> Tensor:
        with torch.autocast(device_type=features.device.type, enabled=False):
            return torch.tanh(self.second(features.float()))


MODES: dict[str, Callable[[], nn.Module]] = {
    kind.__name__: kind
    for kind in (
        FrozenMiddle,
        FrozenSecond,
        Decorated,
        Reenabled,
        Inference,
        InPlace,
        HalfMiddle,
        WideMiddle,
    )
}


class Fourier(Body):
    """The middle filters the spectrum of its input."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Parameter(torch.linspace(0.5, 1.5, 4).view(1, 4, 1, 1))

    def middle(self, features: Tensor) -> Tensor:
        spectrum = torch.fft.rfft2(self.second(features)) * self.filter
        spectrum = spectrum * torch.exp(0.3j * self.filter)
        result: Tensor = torch.fft.irfft2(spectrum.conj(), s=features.shape[2:])
        return result


class Regions(nn.Module):
    """A submodule whose code uses torch.utils.checkpoint."""

    def __init__(self, *, reentrant: bool) -> None:
        super().__init__()
        self.reentrant = reentrant
        self.layer = nn.Conv2d(4, 4, 3, padding=1)

    def forward(self, features: Tensor) -> Tensor:
        result: Tensor = checkpoint(self.layer, features, use_reentrant=self.reentrant)
        return result


class Counted(Body):
    """Counts the calls of its hooks; its block changes in place what a later step reads."""

    def __init__(self) -> None:
        super().__init__()
        self.block = nn.Sequential(nn.ReLU(inplace=True), nn.Conv2d(4, 4, 3, padding=1))
        self.norm = nn.BatchNorm2d(4)
        self.drop = nn.Dropout(0.3)
        self.calls: list[str] = []

    def middle(self, features: Tensor) -> Tensor:
        features = self.drop(self.norm(super().middle(features))) * 2
        result: Tensor = self.block(features) + features
        return result


def _note(model: Counted, what: str) -> None:
    model.calls.append(what)


def _before(model: Any, inputs: tuple[Any, ...]) -> Any:
    _note(model, "before")
    return inputs[0] * 1.5


def _before_named(model: Any, inputs: tuple[Any, ...], named: dict[str, Any]) -> Any:
    _note(model, "before, named")
    return (inputs[0] + 0.25,), named


def _after(model: Any, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
    _note(model, "after")
    result: Tensor = output * inputs[0].mean()
    return result


def _after_named(model: Any, inputs: tuple[Any, ...], named: dict[str, Any], output: Tensor) -> Tensor:
    assert not named
    _note(model, "after, named")
    result: Tensor = output + output.square() * inputs[0].std()
    return result


def _in_backward(model: Any, inputs: Any, outputs: Any) -> None:
    assert [part is None for part in inputs] == [True]
    assert isinstance(outputs[0], Tensor)
    _note(model, "backward")


def _before_backward(model: Any, outputs: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    _note(model, "before backward")
    return (outputs[0] * 3,)


def _half_backward(_: Any, inputs: Any, __: Any) -> tuple[Tensor]:
    return (inputs[0] * 0.5,)


def _root(model: Counted) -> None:
    model.register_forward_pre_hook(_before)
    model.register_forward_pre_hook(_before_named, with_kwargs=True)
    model.register_forward_hook(_after, always_call=True)
    model.register_forward_hook(_after_named, with_kwargs=True)


def _root_backward(model: Counted) -> None:
    model.register_full_backward_pre_hook(_before_backward)
    model.register_full_backward_hook(_in_backward)


def _block(model: Counted) -> None:
    model.block.register_forward_hook(lambda _, inputs, output: output * 2 + inputs[0])
    model.block.register_forward_pre_hook(lambda *_: _note(model, "block"))


def _block_backward(model: Counted) -> None:
    # torch refuses backward hooks around a layer that changes its input in place.
    model.block[0] = nn.Tanh()
    model.block.register_full_backward_hook(_half_backward)
    model.block.register_full_backward_pre_hook(lambda *_: _note(model, "block"))


def _leaves(model: Counted) -> None:
    model.second.register_forward_hook(lambda _, __, output: output + 1)
    model.third.register_forward_pre_hook(lambda _, inputs: (inputs[0] * 2,))
    model.third.register_full_backward_hook(_half_backward)
    model.second.register_forward_pre_hook(lambda *_: _note(model, "second"))


def _replaced(model: Counted) -> None:
    """Hooks of layers that a training replaces by its own."""
    model.norm.register_forward_hook(lambda _, __, output: output * 3)
    model.norm.register_forward_pre_hook(lambda *_: _note(model, "norm"))
    model.drop.register_full_backward_hook(_half_backward)
    model.drop.register_forward_hook(lambda *_: _note(model, "drop"))


HOOKED: dict[str, Callable[[Counted], None]] = {
    "root": _root,
    "root, backward": _root_backward,
    "block": _block,
    "block, backward": _block_backward,
    "leaves": _leaves,
    "replaced": _replaced,
}


def hooked(name: str) -> Counted:
    """A model with one set of hooks."""
    model = Counted()
    HOOKED[name](model)
    return model
