"""Finds out whether a model in stages computes the same as the whole model, and where it first differs.

As in `verify`, the error of a tensor is ||g - g'|| / (||g|| + ||all|| / 100), where `all` are all tensors of
its kind. The limits are far above rounding: both runs use the same operations on the same data, so only code
that means something else in stages is looked for.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf, isfinite, sqrt

import torch
from torch import Tensor

from drivetrain.assembly.cut_trial import LayerCall, Outcome
from drivetrain.pipeline.cutting.stage_values import numbers_of_step
from drivetrain.pipeline.graph.trace import TracedModel

__all__ = ["find_difference", "is_same", "tensor_errors"]

_LARGEST_ERROR, _LARGEST_HALF_ERROR = 1e-3, 3e-2
_SHARE_OF_ALL = 0.01


def is_same(whole: Outcome, cut: Outcome) -> bool:
    """Whether outputs, gradients, buffers and the types of all layers agree."""
    most = _largest_error(whole)
    return (
        not _wrong_outputs(whole, cut, most)
        and not _wrong(whole.gradients, cut.gradients, most)
        and not _wrong(whole.buffers, cut.buffers, most)
        and not any(_wrong_call(whole, cut, path) for path in whole.calls)
    )


def find_difference(whole: Outcome, cut: Outcome, *, traced: TracedModel) -> str | None:
    """The first difference, as a part of a sentence; both outcomes must have the values of all layers."""
    most = _largest_error(whole)
    return (
        _first_call(whole, cut, traced, most)
        or _output_in_words(whole, cut, traced, most)
        or _gradient_in_words(whole, cut, traced, most)
        or _buffer_in_words(whole, cut, most)
    )


def tensor_errors(expected: Mapping[str, Tensor], found: Mapping[str, Tensor]) -> dict[str, float]:
    """The error of every tensor that is not equal in all elements; NaN equals NaN."""
    unequal = {name: value for name, value in expected.items() if not _is_equal(value, found.get(name))}
    if not unequal:
        return {}
    floor = _SHARE_OF_ALL * _norm(*map(_numbers, expected.values()))
    return {name: _error(value, found.get(name), floor=floor) for name, value in unequal.items()}


def _largest_error(outcome: Outcome) -> float:
    return _LARGEST_HALF_ERROR if outcome.is_half else _LARGEST_ERROR


def _wrong(expected: Mapping[str, Tensor], found: Mapping[str, Tensor], most: float) -> dict[str, float]:
    return {name: error for name, error in tensor_errors(expected, found).items() if not error <= most}


def _wrong_outputs(whole: Outcome, cut: Outcome, most: float) -> dict[str, float]:
    """The errors of the logits, also of those that were computed again before a backward pass."""
    if not whole.outputs or not cut.outputs:
        return {"0": inf} if len(whole.outputs) != len(cut.outputs) else {}
    found = _numbered(cut.outputs)
    return _wrong(dict.fromkeys(found, whole.outputs[0]), found, most)


def _is_equal(expected: Tensor, found: Tensor | None) -> bool:
    return found is not None and expected.dtype == found.dtype and torch.equal(expected, found)


def _error(expected: Tensor, found: Tensor | None, *, floor: float) -> float:
    if found is None or expected.shape != found.shape:
        return inf
    numbers, others = _numbers(expected), _numbers(found)
    is_same = (numbers == others) | (numbers.isnan() & others.isnan())
    distance = float((others - numbers).masked_fill(is_same, 0.0).norm())
    if distance == 0:
        return 0.0
    # Whole numbers, such as counts, are not rounded.
    length = _norm(numbers) + (floor if expected.is_floating_point() or expected.is_complex() else 0.0)
    ratio = distance / length if length else inf
    return ratio if isfinite(ratio) else inf


def _numbers(tensor: Tensor) -> Tensor:
    return (torch.view_as_real(tensor) if tensor.is_complex() else tensor).to(torch.float64)


def _norm(*tensors: Tensor) -> float:
    """The norm of all finite elements."""
    return sqrt(sum(float(tensor.square().nan_to_num(posinf=0.0).sum()) for tensor in tensors))


@dataclass(frozen=True, slots=True)
class _Pair:
    """One call of a layer in both runs; `found` is None if the layer does not run in the stages."""

    expected: LayerCall
    found: LayerCall | None

    def wrong(self, which: str, most: float) -> float:
        """The largest error of the call's `inputs` or `outputs`, 0 if all are within the limit."""
        expected, found = (_numbered(getattr(call, which)) for call in (self.expected, self.found))
        return max(_wrong(expected, found, most).values(), default=0.0)


def _numbered(values: Sequence[Tensor]) -> dict[str, Tensor]:
    return {str(number): value for number, value in enumerate(values)}


def _wrong_call(whole: Outcome, cut: Outcome, path: str) -> int | None:
    """The number, from 1, of the first call of a layer that is missing or returns other types."""
    for number, expected in enumerate(whole.calls[path]):
        found = _call(cut.calls.get(path, ()), number)
        if found is None or found.kinds != expected.kinds:
            return number + 1
    return None


def _call(calls: Sequence[LayerCall], number: int) -> LayerCall | None:
    """Recomputed calls come after the first ones, so the numbers of those are the same in both runs."""
    return calls[number] if number < len(calls) else None


def _first_call(whole: Outcome, cut: Outcome, traced: TracedModel, most: float) -> str | None:
    uses: dict[str, int] = {}
    before = "the images"
    for layer in traced.layers:
        path = layer.module_path
        if path is None:
            continue
        number = uses[path] = uses.get(path, -1) + 1
        expected = _call(whole.calls.get(path, ()), number)
        if expected is not None:
            fault = _call_in_words(layer.name, _Pair(expected, _call(cut.calls[path], number)), before, most)
            if fault is not None:
                return fault
        before = f"layer {layer.name}"
    return None


def _call_in_words(name: str, pair: _Pair, before: str, most: float) -> str | None:
    if pair.found is None:
        return f"layer {name} does not run"
    given, made = pair.wrong("inputs", most), pair.wrong("outputs", most)
    if given:
        return f"the input of layer {name} is {_by(given)}, due to the code between {before} and it"
    if made:
        return f"the output of layer {name} is {_by(made)}, although its input is the same"
    if pair.found.kinds != pair.expected.kinds:
        kinds = [" and ".join(map(_short, call.kinds)) for call in (pair.found, pair.expected)]
        return f"layer {name} returns {kinds[0]} instead of {kinds[1]}"
    return None


def _output_in_words(whole: Outcome, cut: Outcome, traced: TracedModel, most: float) -> str | None:
    errors = _wrong_outputs(whole, cut, most)
    if not errors:
        return None
    last = [layer.name for layer in traced.layers if layer.module_path][-1:]
    after = f"the code after layer {last[0]}" if last else "its code"
    return f"the output is {_by(max(errors.values()))}, due to {after} or a hook of the whole model"


def _gradient_in_words(whole: Outcome, cut: Outcome, traced: TracedModel, most: float) -> str | None:
    """The wrong gradient nearest to the output: those of all layers before it follow from it."""
    errors = _wrong(whole.gradients, cut.gradients, most)
    if not errors:
        return None
    names = {id(parameter): name for name, parameter in traced.model.named_parameters()}
    for layer in reversed(traced.layers):
        for _, tensor in numbers_of_step(traced, layer.node):
            name = names.get(id(tensor))
            if name in errors:
                return f"the gradient of {name}, at layer {layer.name}, is {_by(errors[name])}"
    name = next(iter(errors))
    return f"the gradient of {name} is {_by(errors[name])}"


def _buffer_in_words(whole: Outcome, cut: Outcome, most: float) -> str | None:
    errors = _wrong(whole.buffers, cut.buffers, most)
    return next((f"the buffer {name} is {_by(error)} afterwards" for name, error in errors.items()), None)


def _by(error: float) -> str:
    return "another" if error == inf else f"off by {error:.1e} of its size"


def _short(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
