"""Maps values or colours in mask files to classes: from classes.txt or classes.json, or from all masks."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.folder_files import first_names
from drivetrain.data.masks.mask_pixels import DecodedMask, FoundValues, colour_of

__all__ = [
    "OBJECT_CODING",
    "MaskCoding",
    "NamedClasses",
    "OutsideClassesError",
    "find_coding",
    "object_coding",
    "read_class_file",
]

_EXAMPLE = '{"background": 0, "cell": 255} or {"background": [0, 0, 0], "cell": [255, 0, 0]}'
_BRIGHTEST = 255
MaskValue = tuple[int, ...]
Found = Mapping[str, FoundValues]
_BINARY = (0, 255)
# More distinct values than this are taken for blurred edges or numbered objects, not for classes.
_MOST_VALUES = 64
# Masks are stored as uint8.
_MOST_CLASSES = 256


@dataclass(frozen=True, slots=True)
class NamedClasses:
    """The classes listed in a file, in order; `values` are their grey values or colours, if it gives them."""

    path: Path
    names: tuple[str, ...]
    values: tuple[tuple[int, ...], ...] | None


def read_class_file(folder: Path) -> NamedClasses | None:
    """The classes that a file in the folder names, if there is one."""
    text_file, json_file = folder / "classes.txt", folder / "classes.json"
    if text_file.is_file() and json_file.is_file():
        raise BadInputError(f"--data-dir {folder} contains both classes.txt and classes.json; keep only one.")
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
        raise BadInputError(f"{path} is not valid JSON ({error}); write it like {_EXAMPLE}.") from None
    if isinstance(content, list) and all(isinstance(name, str) for name in content):
        return NamedClasses(path, tuple(content), None)
    if not isinstance(content, dict):
        raise BadInputError(f"{path} must give the value or colour of each class, like {_EXAMPLE}.")
    values = tuple(_value(path, name, value) for name, value in content.items())
    return NamedClasses(path, tuple(content), values)


def _value(path: Path, name: str, value: Any) -> tuple[int, ...]:
    numbers = value if isinstance(value, list) else [value]
    is_whole = all(isinstance(number, int) and not isinstance(number, bool) for number in numbers)
    is_colour = len(numbers) == 3 and is_whole and all(0 <= number <= _BRIGHTEST for number in numbers)
    is_grey = not isinstance(value, list) and is_whole and value >= 0
    if not is_colour and not is_grey:
        raise BadInputError(
            f"{path} gives class {name} the value {json.dumps(value)}, which is neither a whole number of 0 "
            f"or more nor a colour [red, green, blue] of 0 to {_BRIGHTEST} each; write it like {_EXAMPLE}."
        )
    return tuple(numbers)


def _checked(classes: NamedClasses) -> NamedClasses:
    if not 2 <= len(classes.names) <= _MOST_CLASSES:
        raise BadInputError(
            f"{classes.path} names {len(classes.names)} classes; name 2 to {_MOST_CLASSES} classes, "
            "including the background."
        )
    if len(set(classes.names)) < len(classes.names):
        raise BadInputError(f"{classes.path} names a class twice; give each class its own name.")
    if classes.values is not None:
        if len({len(value) for value in classes.values}) > 1:
            raise BadInputError(
                f"{classes.path} mixes grey values and colours; use one kind for all classes, like "
                f"{_EXAMPLE}."
            )
        if len(set(classes.values)) < len(classes.values):
            raise BadInputError(f"{classes.path} gives two classes the same value; give each class its own.")
    return classes


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"{path} cannot be read ({error}); save it as UTF-8 text.") from error


class OutsideClassesError(ValueError):
    """A mask contains a value, `code`, that is not a class."""

    def __init__(self, sentence: str, *, code: int) -> None:
        super().__init__(sentence)
        self.code = code


@dataclass(frozen=True, slots=True, kw_only=True)
class MaskCoding:
    """The grey value or colour of each class, in the order of the classes."""

    class_names: tuple[str, ...]
    mask_values: tuple[MaskValue, ...]
    by_colour: bool
    by_object: bool = False

    def classes_in(self, mask: DecodedMask) -> NDArray[np.uint8]:
        """The class of each pixel of a mask (height, width)."""
        if self.by_object:
            return mask.is_object().astype(np.uint8)
        values = mask.colours() if self.by_colour else mask.values()
        codes = np.array([self._code(value) for value in self.mask_values])
        classes = _places_of(values, codes)
        is_outside = classes < 0
        if is_outside.any():
            outside = int(values[is_outside][0])
            raise OutsideClassesError(f"{self.shown(outside)}, which is none of the classes", code=outside)
        return classes.astype(np.uint8)

    def outside(self, found: FoundValues) -> int | None:
        """The first value of a mask that is not a class."""
        known = {self._code(value) for value in self.mask_values}
        return next((code for code in self._codes_of(found) if code not in known), None)

    def absent(self, found: Iterable[FoundValues]) -> list[str]:
        """The classes that do not occur in any mask."""
        seen = {code for mask in found for code in self._codes_of(mask)}
        pairs = zip(self.class_names, self.mask_values, strict=True)
        return [name for name, value in pairs if self._code(value) not in seen]

    def shown(self, code: int) -> str:
        """A value of a mask, for a message."""
        return f"the colour {list(colour_of(code))}" if self.by_colour else f"the value {code}"

    def _codes_of(self, found: FoundValues) -> tuple[int, ...]:
        return found.colours if self.by_colour else found.values

    def _code(self, value: MaskValue) -> int:
        """The code of a class; a grey value counts as a colour where masks are read as colours."""
        if not self.by_colour:
            return value[0]
        red, green, blue = value if len(value) == 3 else value * 3
        return red << 16 | green << 8 | blue


def _places_of(values: NDArray[Any], codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """The index of each value in `codes`; -1 if it is not there."""
    order = codes.argsort()

    def look_up(wanted: NDArray[Any]) -> NDArray[np.int64]:
        places = np.minimum(np.searchsorted(codes[order], wanted), len(codes) - 1)
        return np.where(codes[order][places] == wanted, order[places], -1)

    # For uint8, a table of 256 look-ups is much cheaper than a search per pixel.
    return look_up(np.arange(256))[values] if values.dtype == np.uint8 else look_up(values)


OBJECT_CODING = MaskCoding(
    class_names=("background", "foreground"), mask_values=((0,), (255,)), by_colour=False, by_object=True
)


def object_coding(named: NamedClasses | None, *, num_classes: int | None) -> MaskCoding:
    """The coding for one mask per object: background is in no mask, foreground in at least one."""
    asked = len(named.names) if named is not None else num_classes
    if asked not in (None, 2):
        origin = str(named.path) if named is not None else f"--num-classes {num_classes}"
        raise BadInputError(
            f"{origin} asks for {asked} classes, but each mask shows one object, which gives 2 classes "
            "(background and object); --num-classes 2 works."
        )
    names = named.names if named is not None else OBJECT_CODING.class_names
    return MaskCoding(
        class_names=names, mask_values=OBJECT_CODING.mask_values, by_colour=False, by_object=True
    )


def find_coding(found: Found, *, named: NamedClasses | None, num_classes: int | None) -> MaskCoding:
    """The coding that all masks of a data set share; `found` is what each file holds."""
    if num_classes is not None and not 2 <= num_classes <= _MOST_CLASSES:
        raise BadInputError(
            f"--num-classes {num_classes} is out of range: masks have 2 to {_MOST_CLASSES} classes; "
            "--num-classes 2 works."
        )
    if named is not None and num_classes is not None and num_classes != len(named.names):
        raise BadInputError(
            f"--num-classes {num_classes} does not match the {len(named.names)} classes in {named.path}; "
            "leave it out."
        )
    by_colour = _is_read_by_colour(found, named=named)
    if named is not None and named.values is not None:
        return MaskCoding(class_names=named.names, mask_values=named.values, by_colour=by_colour)
    count = len(named.names) if named is not None else num_classes
    values = _values_of_classes(found, by_colour=by_colour, count=count, named=named)
    names = named.names if named is not None else _default_names(values)
    return MaskCoding(class_names=names, mask_values=values, by_colour=by_colour)


def _is_read_by_colour(found: Found, *, named: NamedClasses | None) -> bool:
    """Palette indices are used as values only if all files assign them the same colours."""
    kinds = {mask.kind for mask in found.values()}
    is_named_by_value = named is not None and named.values is not None and len(named.values[0]) == 1
    if named is not None and named.values is not None and not is_named_by_value:
        by_colour = True
    elif kinds == {"palette"}:
        by_colour = not (is_named_by_value or _palettes_agree(found))
    else:
        by_colour = not kinds <= {"grey", "jpeg"}
    if by_colour:
        _require_colours(found)
    return by_colour


def _palettes_agree(found: Found) -> bool:
    shown: dict[int, int] = {}
    pairs = (pair for mask in found.values() for pair in zip(mask.values, mask.colours, strict=True))
    return all(shown.setdefault(value, colour) == colour for value, colour in pairs)


def _require_colours(found: Found) -> None:
    for path, mask in found.items():
        if mask.values and not mask.colours:
            raise BadInputError(
                f"{path} contains the grey value {mask.values[-1]}, but other masks contain colours; save "
                "all masks as colours or all as grey values."
            )


def _values_of_classes(
    found: Found, *, by_colour: bool, count: int | None, named: NamedClasses | None
) -> tuple[MaskValue, ...]:
    if not by_colour:
        seen = {value for mask in found.values() for value in mask.values}
        return _grey_classes(found, seen, count=count)
    colours = sorted({colour for mask in found.values() for colour in mask.colours})
    triples = [colour_of(colour) for colour in colours]
    if all(red == green == blue for red, green, blue in triples):
        return _grey_classes(found, {red for red, _, _ in triples}, count=count)
    if named is not None:
        raise BadInputError(
            f"{named.path} does not say which colour each class has; replace it by a classes.json like "
            '{"background": [0, 0, 0], "cell": [255, 0, 0]}.'
        )
    _require_few(found, len(colours), kind="colours")
    if count is not None and count != len(colours):
        raise BadInputError(
            f"--num-classes {count} does not match the {len(colours)} colours in the masks "
            f"({_listed(triples)}); leave it out, or name the classes in classes.json."
        )
    return tuple(triples)


def _grey_classes(found: Found, seen: set[int], *, count: int | None) -> tuple[MaskValue, ...]:
    """The values of the classes: those found, or 0 to `count` - 1."""
    if count is None:
        values = _values_seen(found, seen)
    elif count == 2 and seen <= set(_BINARY) and seen != {0}:
        values = list(_BINARY)
    elif len(seen) == count and max(seen) >= _MOST_VALUES:
        values = sorted(seen)
    else:
        values = list(range(count))
    return tuple((value,) for value in values)


def _values_seen(found: Found, seen: set[int]) -> list[int]:
    if seen <= set(_BINARY):
        return list(_BINARY)
    if len(seen) == 1 and seen != {1}:
        raise BadInputError(
            f"Every pixel of all masks has the value {seen.pop()}, so there is only one class; use "
            "--num-classes N to read the values 0 to N-1 as classes."
        )
    _require_few(found, len(seen), kind="values")
    return [0, 1] if seen == {1} else sorted(seen)


def _require_few(found: Found, count: int, *, kind: str) -> None:
    if count <= _MOST_VALUES:
        return
    path = max(found, key=lambda name: len(found[name].colours or found[name].values))
    raise BadInputError(
        f"The masks contain {count} different {kind}, most of them in {path}, which suggests blurred edges "
        "or numbered objects rather than classes; save each class as one value, or name the classes in "
        "classes.json, or use --num-classes N to read the values 0 to N-1 as classes."
    )


def _default_names(values: tuple[MaskValue, ...]) -> tuple[str, ...]:
    if len(values) == 2 and not any(values[0]):
        return "background", "foreground"
    return tuple(
        str(value[0]) if len(value) == 1 else "#" + "".join(f"{part:02x}" for part in value)
        for value in values
    )


def _listed(triples: list[tuple[int, int, int]]) -> str:
    return first_names([str(list(triple)) for triple in triples])
