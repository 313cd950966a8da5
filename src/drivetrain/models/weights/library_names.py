"""Weights in another form than a library's model has now: the library's own code for it changes them."""

import re
import sys
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, nn

from drivetrain.models.weights.quietly import quiet_transformers
from drivetrain.models.weights.translation import Translation, size_text

__all__ = ["from_library"]

# The function that most modules of timm have for their models: (state dict, model) -> state dict.
_TIMM_FILTER = "checkpoint_filter_fn"
# Layers of torchvision's DenseNets were called norm.1 before they were called norm1.
_OLD_LAYER = re.compile(r"(\.(?:norm|relu|conv))\.([12]\.)")


def from_library(model: nn.Module, tensors: Mapping[str, Tensor], *, given: str) -> Translation | None:
    """The tensors in the form of the library's model, such as resampled position embeddings.

    None if the model is of no library that can do this, or if it cannot change these tensors.
    """
    library = type(model).__module__.partition(".")[0]
    change = _CHANGES.get(library)
    if change is None:
        return None
    try:
        changed = dict(change(model, dict(tensors)))
    except Exception:
        # Libraries fail in many ways on weights of another network; the caller says how those differ.
        return None
    resampled = [
        name for name, value in changed.items() if name in tensors and value.shape != tensors[name].shape
    ]
    notes = [
        f"{given}: {name} is resampled from {size_text(tensors[name])} to {size_text(changed[name])}."
        for name in resampled[:1]
        if tensors[name].numel() != changed[name].numel()
    ]
    return Translation(changed, tuple(notes))


def _by_timm(model: nn.Module, tensors: dict[str, Tensor]) -> Mapping[str, Tensor]:
    found: Mapping[str, Tensor] = getattr(sys.modules[type(model).__module__], _TIMM_FILTER)(tensors, model)
    return found


def _by_torchvision(model: Any, tensors: dict[str, Tensor]) -> Mapping[str, Tensor]:
    renamed = {_OLD_LAYER.sub(r"\1\2", name): value for name, value in tensors.items()}
    if "encoder.pos_embedding" not in renamed:
        return renamed
    from torchvision.models.vision_transformer import interpolate_embeddings

    changed: Mapping[str, Tensor] = interpolate_embeddings(model.image_size, model.patch_size, renamed)
    return changed


def _by_transformers(model: Any, tensors: dict[str, Tensor]) -> Mapping[str, Tensor]:
    options = {"output_loading_info": True, "ignore_mismatched_sizes": True}
    with quiet_transformers():
        twin, said = type(model).from_pretrained(None, config=model.config, state_dict=tensors, **options)
    misshapen = [name for name, *_ in said["mismatched_keys"]]
    lost = {*said["missing_keys"], *misshapen}
    state: dict[str, Tensor] = twin.state_dict()
    kept = {name: tensors[name] for name in (*misshapen, *said["unexpected_keys"]) if name in tensors}
    return {name: value for name, value in state.items() if name not in lost} | kept


_CHANGES: Mapping[str, Callable[[Any, dict[str, Tensor]], Mapping[str, Tensor]]] = {
    "timm": _by_timm,
    "torchvision": _by_torchvision,
    "transformers": _by_transformers,
}
