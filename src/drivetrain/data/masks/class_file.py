"""`classes.txt` or `classes.json` beside masks: what the classes are called, and how they are written."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from drivetrain.core.errors import BadInputError

__all__ = ["NamedClasses", "read_class_file"]

_EXAMPLE = '{"background": 0, "cell": 255} or {"background": [0, 0, 0], "cell": [255, 0, 0]}'
_BRIGHTEST = 255
_MOST_CLASSES = 256


@dataclass(frozen=True, slots=True)
class NamedClasses:
    """The classes of a file in its order; `values` are the grey value or colour of each, where it says so."""

    path: Path
    names: tuple[str, ...]
    values: tuple[tuple[int, ...], ...] | None


def read_class_file(folder: Path) -> NamedClasses | None:
    """The classes that a file in the folder names, if there is one."""
    text_file, json_file = folder / "classes.txt", folder / "classes.json"
    if text_file.is_file() and json_file.is_file():
        raise BadInputError(
            f"--data-dir {folder} holds both classes.txt and classes.json; keep one of the two."
        )
    if json_file.is_file():
        return _checked(_from_json(json_file))
    if text_file.is_file():
        lines = (line.strip() for line in _text(text_file).splitlines())
        return _checked(NamedClasses(text_file, tuple(line for line in lines if line), None))
    return None


def _from_json(path: Path) -> NamedClasses:
    try:
        content = json.loads(_text(path))
    except ValueError as error:
        raise BadInputError(f"{path} is no JSON ({error}); write it like {_EXAMPLE}.") from None
    if isinstance(content, list) and all(isinstance(name, str) for name in content):
        return NamedClasses(path, tuple(content), None)
    if not isinstance(content, dict):
        raise BadInputError(f"{path} must give each class's value or colour, like {_EXAMPLE}.")
    values = tuple(_value(path, name, value) for name, value in content.items())
    return NamedClasses(path, tuple(content), values)


def _value(path: Path, name: str, value: Any) -> tuple[int, ...]:
    numbers = value if isinstance(value, list) else [value]
    is_whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    is_colour = len(numbers) == 3 and is_whole and all(0 <= number <= _BRIGHTEST for number in numbers)
    is_grey = not isinstance(value, list) and is_whole and value >= 0
    if not is_colour and not is_grey:
        raise BadInputError(
            f"{path} gives {name} the value {json.dumps(value)}, which is no value of 0 or more and no "
            f"colour [red, green, blue]; write it like {_EXAMPLE}."
        )
    return tuple(numbers)


def _checked(classes: NamedClasses) -> NamedClasses:
    if not 2 <= len(classes.names) <= _MOST_CLASSES:
        raise BadInputError(
            f"{classes.path} names {len(classes.names)} classes; name at least 2 and at most "
            f"{_MOST_CLASSES}, the background too."
        )
    if len(set(classes.names)) < len(classes.names):
        raise BadInputError(f"{classes.path} names a class twice; give each class its own name.")
    if classes.values is not None:
        if len({len(value) for value in classes.values}) > 1:
            raise BadInputError(f"{classes.path} mixes values and colours; write it like {_EXAMPLE}.")
        if len(set(classes.values)) < len(classes.values):
            raise BadInputError(f"{classes.path} gives two classes one value; give each its own.")
    return classes


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} cannot be read ({error}); save it as UTF-8 text.") from error
