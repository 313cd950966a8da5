"""A fingerprint of data as lines for people."""

from collections.abc import Iterator

from drivetrain.console.tables import text_table
from drivetrain.data.fingerprint.duplicates_text import duplicates_lines
from drivetrain.data.fingerprint.fingerprint import Fingerprint, Spread

__all__ = ["fingerprint_lines"]

_MOST_CLASSES = 30
_MOST_NAMED = 5


def fingerprint_lines(found: Fingerprint) -> list[str]:
    """The measurements, then a table of classes, then what should worry the owner."""
    return [*_measurements(found), *_classes(found), *_worries(found)]


def _measurements(found: Fingerprint) -> Iterator[str]:
    counts = ", ".join(f"{count} {name}" for name, count in found.samples.items())
    yield f"samples: {counts} ({found.measured} training samples measured)"
    yield (
        f"images: height {_spread(found.height_px)}, width {_spread(found.width_px)} pixels, "
        f"{_counted(found.channels, 'channel')} of {found.bits} bits{_white(found)}"
    )
    mean, std = (", ".join(f"{value:.3f}" for value in values) for values in (found.mean, found.std))
    yield f"pixels: mean {mean}, deviation {std}"
    mirrors = found.asymmetry
    if mirrors is not None:
        yield (
            f"difference from mirror images, in deviations: left-right {mirrors.left_right:.2f}, up-down "
            f"{mirrors.up_down:.2f}, turned by 90 degrees {mirrors.quarter_turn:.2f}"
        )
    if found.groups is not None:
        yield f"groups: {found.groups} by --group-by"
    if found.objects is not None:
        yield (
            f"objects: {found.objects.per_image:g} per image, diameter {_spread(found.objects.diameter_px)} "
            "pixels"
        )


def _white(found: Fingerprint) -> str:
    return "" if found.white_level is None else f" ({found.white_level} is read as white)"


def _classes(found: Fingerprint) -> list[str]:
    shares = found.pixel_shares
    titles = ("class", "training images", *(("share of pixels",) if shares else ()))
    rows = [
        (name, str(count), *((f"{shares[index]:.2%}",) if shares else ()))
        for index, (name, count) in enumerate(zip(found.class_names, found.class_counts, strict=True))
    ]
    more = len(rows) - _MOST_CLASSES
    return [*text_table([titles, *rows[:_MOST_CLASSES]]), *([f"and {more} more classes"] if more > 0 else [])]


def _worries(found: Fingerprint) -> Iterator[str]:
    if found.unreadable:
        names = ", ".join(found.unreadable[:_MOST_NAMED])
        yield f"cannot be read: {len(found.unreadable)} of the measured files, such as {names}"
    yield from duplicates_lines(found)
    if found.suggested_groups is not None:
        yield found.suggested_groups.sentence
    empty = [name for name, count in zip(found.class_names, found.class_counts, strict=True) if not count]
    if empty:
        yield f"without training images: {', '.join(empty[:_MOST_NAMED])}"


def _spread(spread: Spread) -> str:
    if spread.smallest == spread.largest:
        return f"{spread.median:g}"
    return f"{spread.smallest:g} to {spread.largest:g} (median {spread.median:g})"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
