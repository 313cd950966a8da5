"""Builds a model by name: a registered model, or the result of a user's function or class."""

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.catalogue.libraries import is_library_model
from drivetrain.catalogue.models import check_image_size, check_model_name, is_external_model, model_info
from drivetrain.catalogue.tasks import TaskName
from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure, import_factory
from drivetrain.core.randomness import stream_key
from drivetrain.core.wording import did_you_mean
from drivetrain.models.from_keras.model import lower_built_model
from drivetrain.models.from_keras.package import is_keras_model
from drivetrain.models.from_keras.python_random import seeded_python
from drivetrain.models.libraries.build import build_library_model
from drivetrain.models.modules import detach_kept_tensors
from drivetrain.models.zoo.initialise import InitialisedModel, initialise_parameters

__all__ = ["build_by", "build_external", "build_model", "create_model", "in_working_form", "takes_parameter"]

# What only data of this kind have.
_KIND_OF = {"num_features": "table", "length": "signal"}
_OPTION_OF = {"channels": "--channels", "image_size": "--image-size", "num_classes": "--num-classes"}


def create_model(
    name: str,
    *,
    channels: int | None = None,
    image_size: int | None = None,
    num_classes: int | None = None,
    seed: int = 0,
    **params: Any,
) -> nn.Module:
    """The model `name` in float32 on the CPU; None stands for the model's native value."""
    return build_model(
        name, channels=channels, image_size=image_size, num_classes=num_classes, seed=seed, params=params
    )


def build_model(
    name: str,
    *,
    channels: int | None,
    image_size: int | None,
    num_classes: int | None,
    seed: int,
    params: Mapping[str, Any],
    draws_weights: bool = True,
    task: TaskName | None = None,
) -> nn.Module:
    """`create_model` for a recipe: `params` is a mapping, because `--model-params` may contain any name.

    `plan` needs no weights: `draws_weights=False` leaves those of a registered model undefined. `task` is for
    a library's model that has several.
    """
    check_model_name(name)
    shape = {"channels": channels, "image_size": image_size, "num_classes": num_classes}
    given = {key: value for key, value in shape.items() if value is not None}
    _check_positive(given)
    _check_not_shape(params)
    if is_library_model(name):
        made = build_library_model(name, shape=given, task=task, params=params, seed=seed)
        return in_working_form(made)
    if is_external_model(name):
        return in_working_form(_build_external(name, shape=given, params=params, seed=seed))
    model = _build_registered(name, shape=given, params=params)
    if draws_weights:
        initialise_parameters(model, seed=seed)
    return in_working_form(model)


def build_external(name: str, *, shape: Mapping[str, int], params: Mapping[str, Any], seed: int) -> nn.Module:
    """The model of a user's class or function, called with those parts of the shape that it accepts."""
    return in_working_form(_build_external(name, shape=shape, params=params, seed=seed))


def in_working_form(model: nn.Module) -> nn.Module:
    """The model in float32 on the CPU, as the rest of the code expects it."""
    for name, parameter in model.named_parameters():
        if parameter.is_complex():
            raise BadInputError(
                f"--model has a complex weight {name}, which optimisers here cannot train; keep a real "
                "weight with a last dimension of 2, and use torch.view_as_complex in forward."
            )
    detach_kept_tensors(model)
    # Not `to(dtype)`, which would drop the imaginary part of complex buffers.
    model._apply(_in_working_type)  # type: ignore[no-untyped-call]
    return model


def _in_working_type(tensor: Tensor) -> Tensor:
    kind = torch.float32 if tensor.is_floating_point() else tensor.dtype
    return tensor.to(device="cpu", dtype=torch.complex64 if tensor.is_complex() else kind)


def takes_parameter(name: str, word: str) -> bool:
    """Whether a model's factory accepts `word` as a keyword argument."""
    check_model_name(name)
    if is_library_model(name):
        return False
    # By default, fork_rng would also save the state of every CUDA device, which initialises CUDA.
    with torch.random.fork_rng(devices=[]):
        factory = import_factory(name, option="--model") if is_external_model(name) else _registered(name)
    accepted = _keyword_parameters(factory)
    return accepted is None or word in accepted


def _registered(name: str) -> Callable[..., InitialisedModel]:
    module_name, _, function_name = model_info(name).factory.partition(":")
    factory: Callable[..., InitialisedModel] = getattr(import_module(module_name), function_name)
    return factory


def _build_registered(name: str, *, shape: Mapping[str, int], params: Mapping[str, Any]) -> InitialisedModel:
    info = model_info(name)
    native = {"channels": info.channels, "image_size": info.image_size, "num_classes": info.num_classes}
    full_shape = {**native, **shape}
    check_image_size(info, full_shape["image_size"])
    factory = _registered(name)
    arguments = _select_arguments(name, factory, shape=full_shape, params=params)
    with torch.random.fork_rng(devices=[]):
        return factory(**arguments)


def _build_external(
    name: str, *, shape: Mapping[str, int], params: Mapping[str, Any], seed: int
) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        factory = import_factory(name, option="--model")
    if isinstance(factory, nn.Module):
        raise BadInputError(f"--model {name} is a finished model; give the function that creates it.")
    return build_by(factory, name=name, shape=shape, params=params, seed=seed)


def build_by(
    factory: Callable[..., Any],
    *,
    name: str,
    shape: Mapping[str, int],
    params: Mapping[str, Any],
    seed: int,
) -> nn.Module:
    """Calls a user's class or function with those parts of the data's shape that it accepts."""
    arguments = _select_arguments(name, factory, shape=shape, params=params)
    key = stream_key(seed, "init")
    with torch.random.fork_rng(devices=[]), seeded_python(key):
        # Seeded after the import: the import may draw random numbers too, but only the first time.
        torch.default_generator.manual_seed(key)
        model = _call_user_factory(name, factory, arguments)
        model = lower_built_model(model, shape=shape) if is_keras_model(model) else model
    if not isinstance(model, nn.Module):
        raise BadInputError(f"--model {name} returned a {type(model).__name__}, not a torch.nn.Module.")
    return model


def _call_user_factory(name: str, factory: Callable[..., Any], arguments: Mapping[str, Any]) -> object:
    try:
        return factory(**arguments)
    except BadInputError:
        raise
    except Exception as error:
        raise BadInputError(f"--model {name} failed: {describe_failure(error)}") from error


def _select_arguments(
    name: str, factory: Callable[..., Any], *, shape: Mapping[str, int], params: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments for a factory: the parts of the shape that it accepts, and all params (or raises)."""
    accepted = _keyword_parameters(factory)
    if accepted is None:
        return {**shape, **params}
    known = [word for word in accepted if word not in _OPTION_OF]
    for word in params:
        if word not in known:
            choice = f"Known: {', '.join(known)}." if known else "It has none."
            raise BadInputError(
                f"--model-params {word} is not a parameter of {name}.{did_you_mean(word, known)} {choice}"
            )
    arguments = {**{word: value for word, value in shape.items() if word in accepted}, **params}
    for word, parameter in accepted.items():
        if parameter.default is parameter.empty and word not in arguments:
            _refuse_other_shape(name, word, shape=shape)
            option = _OPTION_OF.get(word, f"--model-params '{{{word}: ...}}'")
            raise BadInputError(f"--model {name} needs {option}.")
    return arguments


def _refuse_other_shape(name: str, word: str, *, shape: Mapping[str, int]) -> None:
    """Says that the data are not what a factory is for: images, a table or signals."""
    if word in _KIND_OF and "image_size" in shape:
        raise BadInputError(
            f"--model {name} needs {word}, which images do not have; --input-kind {_KIND_OF[word]} makes the "
            f"data a {_KIND_OF[word]}."
        )
    if word in _OPTION_OF and not _KIND_OF.keys().isdisjoint(shape):
        raise BadInputError(
            f"--model {name} needs {word}, which these data do not have; it can take {', '.join(shape)}."
        )


def _keyword_parameters(factory: Callable[..., Any]) -> dict[str, inspect.Parameter] | None:
    """The keyword parameters of a factory; None if it accepts any name or has no signature."""
    try:
        parameters = inspect.signature(factory).parameters
    except (TypeError, ValueError):
        return None
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return None
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {word: parameter for word, parameter in parameters.items() if parameter.kind in by_name}


def _check_positive(shape: Mapping[str, int]) -> None:
    for word, value in shape.items():
        if value < 1:
            raise BadInputError(f"{_OPTION_OF[word]} {value} must be at least 1.")


def _check_not_shape(params: Mapping[str, Any]) -> None:
    for word in params:
        if word in _OPTION_OF:
            raise BadInputError(f"{word} does not belong in --model-params; use {_OPTION_OF[word]}.")
