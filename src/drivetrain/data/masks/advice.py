"""What a user should know about images and masks that can be read, but may not be what was meant."""

from collections.abc import Iterator, Sequence

from drivetrain.data.files.folder_files import describe_animations, first_names
from drivetrain.data.masks.coding import MaskCoding
from drivetrain.data.masks.scan import Look, Sample

__all__ = ["advise", "advise_on_animations", "advise_on_dark_images"]

_DARK = 32


def advise(seen: Sequence[Look], coding: MaskCoding, *, num_classes: int | None) -> Iterator[str]:
    """Sentences about lossy masks, and about classes that are missing or were guessed."""
    found = [values for look in seen for values in look.masks.values()]
    lossy = sum(values.kind == "jpeg" for values in found)
    if lossy:
        yield (
            f"{lossy} masks are JPEG files, which blur what they store; pixels of 128 or more count as "
            "white. PNG keeps masks as they are."
        )
    if not coding.by_object:
        absent = coding.absent(found)
        if absent:
            yield f"No pixel of the masks is of class {first_names(absent)}."
        if num_classes is None:
            yield from _guessed_values(coding)


def advise_on_animations(samples: Sequence[Sample]) -> Iterator[str]:
    """A sentence where files hold more frames than the one that is read."""
    animated = [file.image for file, look in samples if look.is_animated]
    if animated:
        yield describe_animations(animated)


def advise_on_dark_images(seen: Sequence[Look]) -> Iterator[str]:
    """A sentence where nothing is bright; cameras often fill 12 of 16 bits."""
    brightest = max((look.brightest for look in seen), default=0)
    if not 0 < brightest < _DARK:
        return
    sentence = f"The images are very dark: no pixel is brighter than {brightest} of 255"
    if all(look.has_16_bits for look in seen if look.brightest):
        level = 2 ** int((brightest - 0.5) * 257).bit_length() - 1
        sentence += (
            f", as 16 bits are read by their whole range; --white-level {level} takes {level} for white"
        )
    yield f"{sentence}."


def _guessed_values(coding: MaskCoding) -> Iterator[str]:
    values = [value[0] for value in coding.mask_values if len(value) == 1]
    is_named = coding.class_names != tuple(map(str, values))
    if not is_named and len(values) > 1 and values != list(range(len(values))):
        yield (
            f"The masks hold the values {first_names([*map(str, values)])}, and each is a class; "
            "--num-classes N reads the values 0 to N-1 as classes instead."
        )
