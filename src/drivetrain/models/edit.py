"""Applies `--model-edit`: a user's own changes to a model after it is built."""

from collections.abc import Sequence

import torch
from torch import nn

from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure, import_factory
from drivetrain.core.randomness import stream_key
from drivetrain.models.create import in_working_form

__all__ = ["edit_model"]

_OPTION = "--model-edit"


def edit_model(model: nn.Module, names: Sequence[str], *, seed: int = 0) -> nn.Module:
    """The model after each function, in order; a function returns the new model, or edits it and None.

    What a function draws from torch's generator follows from the seed and its own name.
    """
    for name in names:
        with torch.random.fork_rng(devices=[]):
            model = _apply(model, name, seed=seed)
    return in_working_form(model) if names else model


def _apply(model: nn.Module, name: str, *, seed: int) -> nn.Module:
    edit = import_factory(name, option=_OPTION)
    # Seeded after the import, which may draw and happens only once.
    torch.default_generator.manual_seed(stream_key(seed, "edit", name))
    try:
        edited = edit(model)
    except BadInputError:
        raise
    except Exception as error:
        raise BadInputError(f"{_OPTION} {name} failed: {describe_failure(error)}") from error
    if edited is None:
        return model
    if not isinstance(edited, nn.Module):
        raise BadInputError(
            f"{_OPTION} {name} returned a {type(edited).__name__}; return the model, or nothing."
        )
    return edited
