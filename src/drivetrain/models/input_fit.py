"""Says why a model cannot take the data: which layer wants other numbers, and what the model would take."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from drivetrain.catalogue.input_kinds import InputKind
from drivetrain.core.factories import describe_failure
from drivetrain.models.input_form import input_kind_of_model

__all__ = ["why_misfit"]

_SAMPLES = 2
_LOGITS = 2  # dimensions: samples and classes
_AS_SIGNALS = "; --input-kind signal hands it the data as signals"
_AS_A_TABLE = "; --input-kind table hands it the data as rows of a table"
_TURNED = (
    "; it would take them transposed: numpy signals are (samples, length, channels), tensors (samples, "
    "channels, length)"
)
_LINES = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d)


class _MisfitError(Exception):
    """A layer gets another number of features or channels than it takes."""


def why_misfit(model: nn.Module, images: Tensor, failure: Exception) -> str:
    """Why a copy of a model failed on these images, and the --input-kind that it would take.

    The copy runs again, so it must be one that nobody needs.
    """
    kind = input_kind_of_model(model)
    words = describe_failure(failure)
    if kind != "image":
        words = _layer_at_fault(model, images) or words
    return words + next((hint for hint, inputs in _other_forms(kind, images) if _takes(model, inputs)), "")


def _layer_at_fault(model: nn.Module, images: Tensor) -> str | None:
    for name, layer in model.named_modules():
        layer.register_forward_pre_hook(lambda own, inputs, name=name: _check(name, own, inputs))
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            model(images)
    except _MisfitError as misfit:
        return str(misfit)
    except Exception:
        return None
    return None


def _check(name: str, layer: nn.Module, inputs: tuple[object, ...]) -> None:
    values = inputs[0] if inputs else None
    if not isinstance(values, Tensor) or values.dim() == 1:
        return
    wanted, given, what = 0, 0, "features"
    if isinstance(layer, nn.Linear):
        wanted, given = layer.in_features, values.shape[-1]
    elif isinstance(layer, _NORMS):
        wanted, given = layer.num_features, values.shape[1]
    elif isinstance(layer, _LINES):
        wanted, given, what = layer.in_channels, values.shape[1], "channels"
    if wanted != given:
        place = f"its layer {name} ({type(layer).__name__})" if name else f"a {type(layer).__name__}"
        raise _MisfitError(f"{place} takes {wanted} {what}, but gets {given}")


def _other_forms(kind: InputKind, images: Tensor) -> Iterator[tuple[str, Tensor]]:
    """What the same data would be if they were meant in another way, and what to do then."""
    _, channels, height, width = images.shape
    if kind == "table":
        yield _AS_SIGNALS, images.new_zeros(_SAMPLES, 1, channels)
    elif kind == "signal" and channels == 1:
        yield _AS_A_TABLE, images.new_zeros(_SAMPLES, width)
    elif kind == "signal":
        yield _TURNED, images.new_zeros(_SAMPLES, width, channels)
    elif height == width == 1:
        yield _AS_A_TABLE, images.new_zeros(_SAMPLES, channels)
    elif channels == 1:
        # Of a tensor, and of a numpy array.
        yield _AS_SIGNALS, images.new_zeros(_SAMPLES, height, width)
        yield _AS_SIGNALS, images.new_zeros(_SAMPLES, width, height)


def _takes(model: nn.Module, inputs: Tensor) -> bool:
    """Whether a model gives an output for each of these inputs, which have no dimensions of pixels."""
    try:
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            output = model(inputs)
    except Exception:
        return False
    return isinstance(output, Tensor) and output.dim() == _LOGITS and len(output) == _SAMPLES
