"""Tells which parameters of a model are its head: what another number of classes would replace."""

from typing import Any

from torch import nn

from drivetrain.models.modules import is_inside

__all__ = ["head_parameters"]

# The child that is not the head: in models of torchvision and transformers, and in those of smp.
_BACKBONE, _ENCODER = "backbone", "encoder"


def head_parameters(model: nn.Module) -> list[str]:
    """The names of the head's parameters: what the model's library calls its head, else the last layer."""
    prefix, inner = _unwrapped(model)
    names = [name for name, _ in inner.named_parameters()]
    return [f"{prefix}{name}" for name in _named_by_library(inner, names) or _last_layer(names)]


def _unwrapped(model: nn.Module) -> tuple[str, nn.Module]:
    """The model inside modules that hold nothing else, and the prefix of its names."""
    prefix, inner = "", model
    while True:
        filled = [(name, child) for name, child in inner.named_children() if list(child.parameters())]
        own = list(inner.parameters(recurse=False))
        if len(filled) != 1 or own or _names_a_part(inner):
            return prefix, inner
        prefix, inner = f"{prefix}{filled[0][0]}.", filled[0][1]


def _names_a_part(module: nn.Module) -> bool:
    return bool(_classifiers(module) or _body(module))


def _named_by_library(module: nn.Module, names: list[str]) -> list[str]:
    classifiers = _classifiers(module)
    if classifiers:
        return [name for name in names if any(is_inside(name, classifier) for classifier in classifiers)]
    body = _body(module)
    return [name for name in names if not is_inside(name, body)] if body else []


def _classifiers(module: nn.Module) -> tuple[str, ...]:
    """The names of the classifiers of a model of timm; a distilled network has two."""
    config: Any = getattr(module, "pretrained_cfg", None)
    named = config.get("classifier") if isinstance(config, dict) else getattr(config, "classifier", None)
    return (named,) if isinstance(named, str) else tuple(named or ())


def _body(module: nn.Module) -> str:
    """The name of the child that holds everything but the head; empty if the model has no such child."""
    children = dict(module.named_children())
    prefix = getattr(module, "base_model_prefix", None)
    if isinstance(prefix, str) and prefix in children:
        return prefix
    if _ENCODER in children and "segmentation_head" in children:
        return _ENCODER
    return _BACKBONE if _BACKBONE in children else ""


def _last_layer(names: list[str]) -> list[str]:
    layer = names[-1].rpartition(".")[0] if names else ""
    return [name for name in names if name.rpartition(".")[0] == layer]
