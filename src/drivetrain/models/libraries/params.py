"""What all libraries share: keywords that are options here, unknown names, and errors in one sentence."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.core.wording import nearest_names

__all__ = ["IMAGENET_MEAN", "IMAGENET_STD", "attempt", "refuse_option_keywords", "unknown_name"]

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)
Made = TypeVar("Made")


def refuse_option_keywords(params: Mapping[str, Any], options: Mapping[str, str]) -> None:
    """Refuses keywords of a library that an option sets; `options` maps them to the option."""
    for word in params:
        if word in options:
            raise BadInputError(f"{word} does not belong in --model-params; use {options[word]}.")


def unknown_name(name: str, known: Iterable[str], *, prefix: str, what: str) -> BadInputError:
    """The error for a name that a library does not have, with the nearest ones."""
    return BadInputError(
        f"--model {prefix}/{name} is not {what}.{nearest_names(name, known, prefix=f'{prefix}/')} "
        f"`drivetrain models list --from {prefix}` lists all."
    )


def attempt(make: Callable[[], Made], *, name: str) -> Made:
    """What a library makes; its error becomes one sentence that names the model."""
    try:
        return make()
    except BadInputError:
        raise
    except Exception as error:
        raise BadInputError(f"--model {name} failed: {describe_failure(error)}") from error
