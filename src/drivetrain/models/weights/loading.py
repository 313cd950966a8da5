"""Loads weights from elsewhere into a model by name and shape, for `--init-from` and `--pretrained`."""

import re
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.models.weights.containers import without_prefixes
from drivetrain.models.weights.files import read_weights
from drivetrain.models.weights.fitting import Fit, fit_tensors
from drivetrain.models.weights.library_names import from_library
from drivetrain.models.weights.resnet_names import from_torchvision

__all__ = ["load_file", "load_tensors"]

# Weights of another model mismatch in almost every tensor; the first few show it.
_MOST_NAMED = 3
_POSITIONS = re.compile(r"pos_embed|position_embedding|relative_position.* instead of ")


def load_file(model: nn.Module, path: str, *, option: str) -> list[str]:
    """Loads the weights in a file, a run or a folder; returns warnings, such as a head that is not loaded."""
    tensors, warnings = read_weights(path, option=option)
    return [*warnings, *load_tensors(model, tensors, given=f"{option} {path}")]


def load_tensors(model: nn.Module, tensors: Mapping[str, Tensor], *, given: str) -> list[str]:
    """Loads tensors by name, all or none; `given` is where they come from, for messages."""
    fit = _best_fit(model, tensors, given=given)
    if fit.problems:
        raise BadInputError(_refusal(fit, given=given))
    _require_finite(fit.taken, given=given)
    own = model.state_dict()
    with torch.no_grad():
        for name, tensor in fit.taken.items():
            own[name].copy_(tensor)
    return list(fit.notes)


def _best_fit(model: nn.Module, tensors: Mapping[str, Tensor], *, given: str) -> Fit:
    """The fit of the tensors as they are, with a wrapper's prefix removed, or under another library's names.

    The first of equally good ones counts.
    """
    readings = [dict(tensors), *without_prefixes(tensors)]
    fits = [fit_tensors(model, reading, given=given) for reading in readings]
    for translate in (from_torchvision, from_library):
        if all(fit.problems for fit in fits):
            translated = translate(model, readings[-1], given=given)
            if translated is not None:
                fit = fit_tensors(model, translated.tensors, given=given)
                fits.append(fit.with_notes(translated.notes))
    return min(fits, key=lambda fit: (bool(fit.problems), -fit.num_fitting))


def _require_finite(tensors: Mapping[str, Tensor], *, given: str) -> None:
    broken = [name for name, tensor in tensors.items() if not tensor.isfinite().all()]
    if broken:
        raise BadInputError(
            f"{given} contains values that are not finite (NaN or infinity) in {len(broken)} of "
            f"{len(tensors)} tensors, first in {broken[0]}; give an intact file."
        )


def _refusal(fit: Fit, *, given: str) -> str:
    named = ", ".join(fit.problems[:_MOST_NAMED])
    more = f" and {len(fit.problems) - _MOST_NAMED} more" if len(fit.problems) > _MOST_NAMED else ""
    return (
        f"{given} does not fit the model: {fit.num_fitting} of the model's {fit.num_own} tensors fit; "
        f"{named}{more}; {_advice(fit)}."
    )


def _advice(fit: Fit) -> str:
    if all(_POSITIONS.search(problem) for problem in fit.problems):
        return "these are positions in images of another size, so give the --image-size of the weights"
    return "give weights of this --model"
