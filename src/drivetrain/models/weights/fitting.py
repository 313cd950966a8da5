"""Compares tensors with a model: which fit, what may differ (head, input channels), and what is wrong."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor, nn

from drivetrain.models.heads import head_parameters
from drivetrain.models.weights.first_convolution import adapt_first_convolution
from drivetrain.models.weights.translation import size_text

__all__ = ["Fit", "fit_tensors"]

_COUNTER = "num_batches_tracked"
_MOST_LAYERS_NAMED = 2
# torchvision's classifiers that exist only in training: aux1, AuxLogits, aux_classifier.
_AUXILIARY = "aux"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fit:
    """The tensors that a model takes by name, what there is to say about them, and what does not fit."""

    taken: Mapping[str, Tensor]
    notes: tuple[str, ...]
    problems: tuple[str, ...]
    num_fitting: int
    num_own: int

    def with_notes(self, notes: Sequence[str]) -> Self:
        """The same with more to say, which comes first."""
        return replace(self, notes=(*notes, *self.notes))


def fit_tensors(model: nn.Module, found: Mapping[str, Tensor], *, given: str) -> Fit:
    """How tensors fit a model; `given` is where they come from, for messages."""
    own = {name: value for name, value in model.state_dict().items() if isinstance(value, Tensor)}
    adapted = adapt_first_convolution(model, found, given=given)
    tensors = adapted.tensors
    head = _head_tensors(model, own)
    others, classes_note = _of_other_classes(own, tensors, head=head, given=given)
    taken = {name: value for name, value in tensors.items() if name in own and own[name].shape == value.shape}
    missing = [name for name in own if name not in tensors and not name.endswith(_COUNTER)]
    is_headless = bool(head) and missing == [name for name in head if not name.endswith(_COUNTER)]
    fresh_note = [_headless_note(head, given=given)] if is_headless else []
    left_out, left_out_note = _auxiliary(own, tensors, given=given)
    return Fit(
        taken=taken,
        notes=(*adapted.notes, *classes_note, *fresh_note, *left_out_note),
        problems=_in_order(
            [
                *([] if is_headless else [f"{name} ({size_text(own[name])}) is missing" for name in missing]),
                *_misshapen(own, tensors, besides=others),
            ],
            _unexpected(own, tensors, besides=left_out),
        ),
        num_fitting=sum(not name.endswith(_COUNTER) for name in taken),
        num_own=sum(not name.endswith(_COUNTER) for name in own),
    )


def _in_order(lacking: Sequence[str], unexpected: Sequence[str]) -> tuple[str, ...]:
    """What is wrong, with an unexpected tensor as the third: the first ones show both namings."""
    return (*lacking[:2], *unexpected[:1], *lacking[2:], *unexpected[1:])


def _head_tensors(model: nn.Module, own: Mapping[str, Tensor]) -> list[str]:
    """The parameters of the head, and the buffers of its layers."""
    layers = {_layer(name) for name in head_parameters(model)}
    return [name for name in own if _layer(name) in layers]


def _layer(name: str) -> str:
    return name.rpartition(".")[0]


def _of_other_classes(
    own: Mapping[str, Tensor], found: Mapping[str, Tensor], *, head: Sequence[str], given: str
) -> tuple[list[str], list[str]]:
    """The tensors of a head for other classes, and a note; auxiliary heads have as many classes."""
    first = next((name for name in head if name in found and _has_other_rows(own[name], found[name])), None)
    if first is None:
        return [], []
    there, here = found[first].shape[0], own[first].shape[0]
    names = [
        name
        for name in own
        if name in found and _has_other_rows(own[name], found[name])
        if name in head or (own[name].shape[0], found[name].shape[0]) == (here, there)
    ]
    note = (
        f"{given} has {there} classes, but the model has {here}: {_layers_text(names)} from newly "
        "initialised weights."
    )
    return names, [note]


def _has_other_rows(own: Tensor, found: Tensor) -> bool:
    is_alike = own.ndim == found.ndim >= 1 and own.shape[1:] == found.shape[1:]
    return is_alike and own.shape[0] != found.shape[0]


def _headless_note(head: Sequence[str], *, given: str) -> str:
    return f"{given} has no weights for the head: {_layers_text(head)} from newly initialised weights."


def _layers_text(names: Sequence[str]) -> str:
    """The layers of the tensors and their verb: `fc starts`, `decoder and segmentation_head start`."""
    layers = list(dict.fromkeys(_layer(name) or name for name in names))
    if len(layers) > _MOST_LAYERS_NAMED:
        layers = list(dict.fromkeys(layer.partition(".")[0] for layer in layers))
    return f"{' and '.join(layers)} {'starts' if len(layers) == 1 else 'start'}"


def _auxiliary(
    own: Mapping[str, Tensor], found: Mapping[str, Tensor], *, given: str
) -> tuple[list[str], list[str]]:
    """The tensors of auxiliary classifiers that the model does not have, and a note."""
    names = [name for name in found if name not in own and name.lower().startswith(_AUXILIARY)]
    parts = list(dict.fromkeys(name.partition(".")[0] for name in names))
    parts = [part for part in parts if not any(name.partition(".")[0] == part for name in own)]
    left_out = [name for name in names if name.partition(".")[0] in parts]
    if not parts:
        return [], []
    return left_out, [f"{given}: {' and '.join(parts)} left out, as the model has no auxiliary classifiers."]


def _misshapen(
    own: Mapping[str, Tensor], found: Mapping[str, Tensor], *, besides: Sequence[str]
) -> list[str]:
    return [
        f"{name} is {size_text(found[name])} instead of {size_text(own[name])}"
        for name in own
        if name in found and found[name].shape != own[name].shape and name not in besides
    ]


def _unexpected(
    own: Mapping[str, Tensor], found: Mapping[str, Tensor], *, besides: Sequence[str]
) -> list[str]:
    """Weights that the model does not have. Whole numbers are no weights, but counters and indices."""
    return [
        f"{name} ({size_text(found[name])}) is not in the model"
        for name in found
        if name not in own and name not in besides and found[name].is_floating_point()
    ]
