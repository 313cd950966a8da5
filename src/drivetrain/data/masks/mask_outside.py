"""What to do about a mask that holds a value which stands for no class."""

from dataclasses import dataclass

from drivetrain.data.masks.coding import MaskCoding

__all__ = ["ClassesAsked", "describe_outside"]

_WHITE = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassesAsked:
    """What a user said of the classes: how many by --num-classes, or their names by a file."""

    num_classes: int | None = None
    is_named: bool = False


def describe_outside(code: int, *, coding: MaskCoding, asked: ClassesAsked) -> str:
    """What a mask holds, and what to do, to stand behind `The mask X` or `it`."""
    return (
        f"holds {coding.shown(code)}, which stands for none of the {len(coding.class_names)} classes; "
        f"correct the mask, or {_remedy(code, coding=coding, asked=asked)}"
    )


def _remedy(code: int, *, coding: MaskCoding, asked: ClassesAsked) -> str:
    if asked.is_named:
        return "add the class to the file that names the classes"
    count = len(coding.class_names)
    is_numbered = coding.mask_values == tuple((number,) for number in range(count))
    if not coding.by_colour and is_numbered and count <= code < _WHITE:
        return f"use --num-classes {code + 1}"
    if asked.num_classes is not None:
        return f"leave out --num-classes {asked.num_classes}"
    return "say which value each class has in classes.json"
