"""Checks the values of `--model-params`."""

from collections.abc import Sequence

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean


def check_share(word: str, value: object) -> None:
    """Raises unless the value is a number from 0 to below 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 1:
        raise BadInputError(
            f"--model-params {word}: {value!r} is not a number from 0 to below 1, such as 0.5."
        )


def check_switch(word: str, value: object) -> None:
    """Raises unless the value is true or false."""
    if not isinstance(value, bool):
        raise BadInputError(f"--model-params {word}: {value!r} is neither true nor false, such as false.")


def check_whole(word: str, value: object, *, most: int | None = None, example: int) -> None:
    """Raises unless the value is a whole number of at least 1 and, if given, at most `most`."""
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= (most or value):
        bounds = "of at least 1" if most is None else f"from 1 to {most}"
        raise BadInputError(
            f"--model-params {word}: {value!r} is not a whole number {bounds}, such as {example}."
        )


def check_choice(word: str, value: object, choices: Sequence[str]) -> None:
    """Raises unless the value is one of the choices."""
    if value not in choices:
        raise BadInputError(
            f"--model-params {word}: {value!r} is not one of {', '.join(choices)}."
            f"{did_you_mean(str(value), choices)}"
        )
