"""How training images are changed: by what the images show, and by how often each is seen."""

from drivetrain.auto.case import Case
from drivetrain.auto.rules.networks import is_tiny
from drivetrain.catalogue.tasks import task_info
from drivetrain.recipe.params import FlipDirection

__all__ = ["decide_augmentation"]

# Fewer passes than this over the images do not learn them by heart, and changes would only slow them down.
_FEWEST_PASSES = 5
_MANY_PASSES = 100
# Effect sizes below this count as "looks the same mirrored".
_SAME = 0.15
_EIGHT_BITS, _COLOURS = 8, 3


def decide_augmentation(case: Case, *, epochs: int) -> None:
    """Sets the augmentation, unless --augment was typed: then everything about it is the user's."""
    if case.is_typed("augment"):
        return
    if task_info(case.fingerprint.task).has_dense_labels:
        _decide_mirrors(case)
        _decide_dense(case)
    elif epochs < _FEWEST_PASSES:
        case.decide("augment", False, f"{epochs} passes over the images do not learn them by heart")
    else:
        case.decide("augment", True, f"each image is seen {epochs} times")
        _decide_mirrors(case)
        _decide_classified(case, epochs=epochs)


def _decide_mirrors(case: Case) -> None:
    """Mirrors the directions in which images mean the same, and averages predictions over them."""
    direction, reason = _mirrors(case)
    case.decide("random_flips", direction, reason)
    if case.value("random_flips") != "none":
        case.decide("flip_averaging", True, "predictions are averaged over the same mirrored images")


def _mirrors(case: Case) -> tuple[FlipDirection | str, str]:
    mirrors = case.fingerprint.asymmetry
    if mirrors is None:
        if task_info(case.fingerprint.task).has_dense_labels:
            return "auto", "too few independent images to tell whether they have a top; most have none"
        return "none", "too few images of a class to tell whether a mirrored one is still of its class"
    found: list[FlipDirection] = []
    if mirrors.left_right < _SAME:
        found.append("horizontal")
    if mirrors.up_down < _SAME:
        found.append("vertical")
    reason = (
        f"images differ from their mirror images by {mirrors.left_right:.2f} deviations (left and right) and "
        f"{mirrors.up_down:.2f} (up and down); below {_SAME} counts as the same"
    )
    return ("none", *found[:1], "both")[len(found)], reason


def _decide_classified(case: Case, *, epochs: int) -> None:
    is_small = is_tiny(case)
    if not is_small:
        share = 0.35 if epochs < _MANY_PASSES else 0.2
        case.decide(
            "random_resized_crop", share, "random crops of photographs; smaller ones in long trainings"
        )
    elif case.fingerprint.dataset in ("image-folder", "image-table", "packed"):
        case.decide("random_resized_crop", 0.6, "crops that keep most of a small image")
    if case.fingerprint.channels == _COLOURS and case.fingerprint.bits == _EIGHT_BITS and not is_small:
        case.decide("rand_augment", 2, "two operations on colours and shapes for each image")
        case.decide("rand_augment_magnitude", 5.0 if epochs < _MANY_PASSES else 7.0, "more in long trainings")
    if epochs >= _MANY_PASSES:
        case.decide("mixup", 0.2, f"{epochs} passes would learn the images by heart, but no blend of two")


def _decide_dense(case: Case) -> None:
    mirrors, is_8_bit = case.fingerprint.asymmetry, case.fingerprint.bits == _EIGHT_BITS
    has_no_top = mirrors is None or max(mirrors.left_right, mirrors.up_down, mirrors.quarter_turn) < _SAME
    degrees = 180.0 if has_no_top else 15.0
    why = "the images have no top" if has_no_top else "the images have a top"
    case.decide("rotate", degrees, f"{why}, as the comparison with turned copies says")
    if is_8_bit:
        case.decide("augment", True, "random crops that are stretched, and brightness")
        case.decide("gamma", 0.3, "exposures differ between images")
