"""Imports the user's own factories, named `package.module:factory`, and describes their errors."""

import importlib
import os
import sys
import sysconfig
from collections.abc import Callable
from functools import reduce
from traceback import extract_tb
from typing import Any

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean

_PACKAGE_FOLDER = os.path.dirname(os.path.dirname(__file__))


def import_factory(spec: str, *, option: str) -> Callable[..., Any]:
    """Imports what `package.module:factory` names; `option` is named in the error if that fails."""
    module_name, _, attribute = spec.partition(":")
    _make_working_directory_importable()
    try:
        module = importlib.import_module(module_name)
    except Exception as error:
        raise BadInputError(f"{option} {spec} cannot be imported: {describe_failure(error)}") from error
    try:
        factory = reduce(getattr, attribute.split("."), module)
    except AttributeError as error:
        hint = did_you_mean(attribute, vars(module), prefix=f"{module_name}:")
        raise BadInputError(f"{option} {spec}: {module_name} has no {attribute}.{hint}") from error
    if not callable(factory):
        raise BadInputError(
            f"{option} {spec} is of type {type(factory).__name__}, not a function or a class."
        )
    return factory


def describe_failure(error: Exception) -> str:
    """An error in the user's code as one line: type, message, and its last file and line."""
    frames = extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_machinery(frame.filename)]
    place = f" ({os.path.relpath(own[-1].filename)} line {own[-1].lineno})" if own else ""
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"


def _is_machinery(filename: str) -> bool:
    library = (_PACKAGE_FOLDER, sysconfig.get_path("stdlib"), "<")
    return filename.startswith(library) or "site-packages" in filename


def _make_working_directory_importable() -> None:
    # A console script has its own folder first in sys.path; only `python -m` adds the working directory.
    if not {"", os.getcwd()} & set(sys.path):
        sys.path.insert(0, os.getcwd())
