"""What to tell the owner of a data set that has images twice."""

from collections.abc import Iterator

from drivetrain.data.fingerprint.fingerprint import Duplicates, Fingerprint

__all__ = ["copies_sentence", "duplicates_lines"]


def duplicates_lines(found: Fingerprint) -> Iterator[str]:
    """Copies of training images, and how many images were compared if it was not all."""
    known = found.duplicates
    if known is not None and known.count:
        one, other = known.first[0]
        yield (
            f"{_counted(known.count, 'validation image')} with the same pixels as a training image, such as "
            f"{other} and {one}; results on them are too good"
        )
    copies = copies_sentence(found)
    if copies is not None:
        yield copies
    if known is not None:
        yield from _partly(known, found, what="validation")
    if found.copies_in_train is not None:
        yield from _partly(found.copies_in_train, found, what="train")


def copies_sentence(found: Fingerprint) -> str | None:
    """That training images of which some will be held out have copies; None if none were found."""
    copies = found.copies_in_train
    if copies is None or not copies.count:
        return None
    one, other = copies.first[0]
    have = "image has" if copies.count == 1 else "images have"
    return (
        f"{copies.count} {have} an exact copy, such as {one} and {other}; copies may lie on both sides of "
        "the split into training and validation, and results on them are too good"
    )


def _partly(compared: Duplicates, found: Fingerprint, *, what: str) -> Iterator[str]:
    if compared.compared is None and compared.compared_with is None:
        return
    named = {"validation": "validation images", "train": "training images"}[what]
    total = found.samples[what]
    others = "" if compared.compared_with is None else f" with {compared.compared_with} training images"
    yield f"copies: only {compared.compared or total} of {total} {named} were compared{others}"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}{'' if count == 1 else 's'}"
