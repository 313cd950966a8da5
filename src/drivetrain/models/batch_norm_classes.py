"""Recognises classes derived from torch's batch norms, such as timm's BatchNormAct2d, by what they compute.

Their layers keep everything that they do besides normalising: `class_around` gives a layer's class another
normalisation, for example one that reports its statistics.
"""

from copy import deepcopy
from enum import Enum
from functools import cache
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules.batchnorm import _BatchNorm

from drivetrain.models.module_values import places_of

__all__ = ["BATCH_NORMS", "NormForm", "class_around", "norm_base", "norm_form"]

BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)
_STATISTICS = ("running_mean", "running_var", "num_batches_tracked")
# The trial of a layer: its images, and the attribute in which the watched norm keeps what it was given.
_SAMPLES, _SIDE, _GIVEN = 4, 3, "given_to_norm"


class NormForm(Enum):
    """How a class uses torch's batch norm.

    `AROUND`: its forward calls that of its base class, or it has none. `TAIL`: its forward normalises by
    itself, as torch does, and then calls its submodules in their order.
    """

    AROUND = "around"
    TAIL = "tail"


_TRIAL_VALUES = {
    "weight": (0.5, 1.5),
    "bias": (-1.0, 1.0),
    "running_mean": (-1.0, 1.0),
    "running_var": (0.5, 2.0),
}
# A trial takes some milliseconds, and each trace of a model asks again.
_KNOWN: WeakKeyDictionary[nn.Module, tuple[tuple[type, ...], NormForm | None]] = WeakKeyDictionary()


def norm_base(norm: nn.Module) -> type[_BatchNorm] | None:
    """The batch norm of torch that a layer is or extends."""
    return next((base for base in BATCH_NORMS if isinstance(norm, base)), None)


def norm_form(norm: nn.Module) -> NormForm | None:
    """How a layer uses torch's batch norm; None if it computes something else than the forms describe."""
    base = norm_base(norm)
    if base is None:
        return None
    made: NormForm | None = getattr(type(norm), "norm_form", None)
    if made is not None or type(norm) is base:
        return made or NormForm.AROUND
    inside = (type(norm), *map(type, norm.children()))
    known = _KNOWN.get(norm)
    if known is None or known[0] != inside:
        found = next((form for form in NormForm if _computes_the_same(norm, form, base)), None)
        known = _KNOWN[norm] = (inside, found)
    return known[1]


def class_around(kind: Any, form: NormForm, core: Any) -> Any:
    """A subclass of a norm's class in which `core`, a subclass of the same norm of torch, normalises."""
    return core if kind in BATCH_NORMS else _made_around(kind, form, core)


@cache
def _made_around(kind: Any, form: NormForm, core: Any) -> Any:
    def forward(self: Any, inputs: Tensor) -> Any:
        outputs = core.forward(self, inputs)
        for layer in self._modules.values():
            outputs = layer(outputs)
        return outputs

    def reduce(self: Any, _protocol: int) -> tuple[Any, ...]:
        # No other process could find a class that was made here.
        return _new_norm, (kind, form, core), vars(self)

    own: dict[str, Any] = {"forward": forward} if form is NormForm.TAIL else {}
    # `super().forward` in the class calls the core, which stands before torch's class.
    return type(
        kind.__name__,
        (kind, core),
        {**own, "norm_form": form, "__reduce_ex__": reduce, "__module__": __name__},
    )


def _new_norm(kind: Any, form: NormForm, core: Any) -> Any:
    made = class_around(kind, form, core)
    return made.__new__(made)


@cache
def _watched(base: Any) -> Any:
    """A norm of torch that leaves its statistics alone and keeps what it was given."""

    def forward(self: Any, inputs: Tensor) -> Tensor:
        vars(self)[_GIVEN].append(inputs.clone())
        uses_batch = self.training or self.running_mean is None
        mean, variance = (None, None) if uses_batch else (self.running_mean, self.running_var)
        return functional.batch_norm(
            inputs, mean, variance, self.weight, self.bias, training=uses_batch, momentum=0.0, eps=self.eps
        )

    return type("Watched", (base,), {"forward": forward})


def _computes_the_same(norm: nn.Module, form: NormForm, base: type[_BatchNorm]) -> bool:
    """Whether a layer computes the same, with the same statistics, if the norm inside is another."""
    for dimensions in _dimensions(base):
        try:
            with torch.random.fork_rng(devices=[]), torch.no_grad():
                # The same answer in every process.
                torch.default_generator.manual_seed(0)
                return _Trial(norm, form, base, dimensions=dimensions).agrees()
        except Exception:
            # It takes inputs of another number of dimensions, or does what a copy cannot.
            continue
    return False


def _dimensions(base: type[_BatchNorm]) -> tuple[int, ...]:
    """The numbers of dimensions besides samples and channels that a norm of torch takes."""
    return {nn.BatchNorm1d: (0, 1), nn.BatchNorm2d: (2,)}.get(base, (3,))


class _Trial:
    """A copy of a layer, one with a watched norm inside, and torch's own norm, on the same inputs."""

    def __init__(self, norm: Any, form: NormForm, base: Any, *, dimensions: int) -> None:
        self._expected, self._actual, self._plain = (_trial_copy(norm) for _ in range(3))
        self._actual.__class__ = class_around(type(norm), form, _watched(base))
        self._plain.__class__ = base
        self._shape = (_SAMPLES, int(norm.num_features), *[_SIDE] * dimensions)

    def agrees(self) -> bool:
        return all(self._agrees_once(training=training) for training in (True, False))

    def _agrees_once(self, *, training: bool) -> bool:
        inputs = torch.randn(self._shape, dtype=torch.float64) * 20 + 10
        self._actual.load_state_dict(self._expected.state_dict())
        given: list[Tensor] = []
        vars(self._actual)[_GIVEN] = given
        for one in (self._expected, self._actual, self._plain):
            one.training = training
        begun = self._noted()
        outputs = [one.forward(inputs.clone()) for one in (self._expected, self._actual)]
        if begun != self._noted() or len(given) != 1:
            return False
        self._plain.forward(given[0])
        statistics = [[getattr(one, name) for name in _STATISTICS] for one in (self._expected, self._plain)]
        # A norm that clamps its statistics has changed them once more, even where no value is different.
        versions = [[part._version for part in parts if part is not None] for parts in statistics]
        return _close(*outputs) and all(map(_close, *statistics)) and versions[0] == versions[1]

    def _noted(self) -> dict[str, object]:
        """What must not change: values other than the statistics, and these where the norm leaves them."""
        places = (place for place in places_of(self._expected) if place.name not in _STATISTICS)
        noted = {place.name: _note(place.value) for place in places}
        return noted | {name: _note(getattr(self._actual, name)) for name in _STATISTICS}


def _trial_copy(norm: nn.Module) -> Any:
    """A copy in float64, with layers inside in eval mode, and without hooks, which are not its code."""
    copied = deepcopy(norm)
    if any(tensor.is_meta for tensor in (*copied.parameters(), *copied.buffers())):
        copied.to_empty(device="cpu")
        for tensor in (*copied.parameters(), *copied.buffers()):
            tensor.fill_(0.25)
    copied.cpu().double().eval()
    for module in copied.modules():
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()
    limits = {
        "weight": (0.5, 1.5),
        "bias": (-1.0, 1.0),
        "running_mean": (-1.0, 1.0),
        "running_var": (0.5, 2.0),
    }
    for name, (lowest, highest) in limits.items():
        tensor = getattr(copied, name)
        if tensor is not None:
            tensor.copy_(torch.linspace(lowest, highest, len(tensor)))
    return copied


def _note(value: object) -> object:
    return (id(value), value._version) if isinstance(value, Tensor) else repr(value)


def _close(one: Tensor | None, other: Tensor | None) -> bool:
    if one is None or other is None:
        return one is other
    return one.shape == other.shape and torch.allclose(one, other, rtol=1e-9, atol=1e-12)
