"""How training images are changed: by what the images show, and by how often each is seen."""

from drivetrain.auto.case import Case
from drivetrain.auto.rules.sizes import is_tiny
from drivetrain.catalogue.data_sets import is_folder_of_files
from drivetrain.recipe.fields import without_augmentation

__all__ = ["decide_augmentation", "views_of"]

# Fewer passes than this over the images do not learn them by heart, and changes would only slow them down.
_FEWEST_PASSES = 5
# Two convolutions and dropout learn even more slowly by heart.
_FEWEST_PASSES_OF = {"mnist_cnn": 20}
_MANY_PASSES = 100
# Effect sizes below this count as "looks the same mirrored".
_SAME = 0.15
_OF_FEW_MASKED = (
    "too few independent images to tell whether they have a top; most images with masks have none"
)
_COLOURS = 3
_ANY_TURN = 180.0
# The shifts of the first U-Net (Ronneberger et al. 2015) had a deviation of 10 pixels of 512.
_BENT_SHARE, _SMALLEST_BENT_PX = 10 / 512, 64
_VIEWS = {"none": 1, "horizontal": 2, "vertical": 2, "both": 4}


def decide_augmentation(case: Case, *, epochs: int) -> None:
    """Sets the augmentation, unless --augment False was typed."""
    if case.typed.get("augment") is False:
        return
    if case.is_dense:
        _decide_mirrors(case)
        _decide_dense(case)
    elif epochs >= _fewest_passes(case) or case.typed.get("augment"):
        case.decide("augment", True, f"each image is seen {epochs} times")
        _decide_mirrors(case)
        _decide_classified(case, epochs=epochs)
    elif not _is_asked(case):
        case.decide("augment", False, f"{epochs} passes over the images do not learn them by heart")


def _fewest_passes(case: Case) -> int:
    return _FEWEST_PASSES_OF.get(str(case.value("model")), _FEWEST_PASSES)


def views_of(case: Case) -> int:
    """Over how many images a prediction is averaged: the image itself and its mirror images."""
    typed = case.typed.get("flip_averaging")
    if typed is False or (typed is None and case.typed.get("augment") is False):
        return 1
    direction = str(case.typed.get("random_flips") or _mirrors(case)[0])
    usual = "both" if case.is_dense else "horizontal"
    return _VIEWS[usual if direction == "auto" or (typed and direction == "none") else direction]


def _is_asked(case: Case) -> bool:
    """Whether the user typed something about the augmentation, which --augment False would make idle."""
    return any(case.is_typed(field) for field in without_augmentation())


def _decide_mirrors(case: Case) -> None:
    """Mirrors the directions in which images mean the same, and averages predictions over them."""
    direction, reason = _mirrors(case)
    case.decide("random_flips", direction, reason)
    if case.value("random_flips") != "none":
        case.decide("flip_averaging", True, "predictions are averaged over the same mirror images")


def _mirrors(case: Case) -> tuple[str, str]:
    mirrors = case.fingerprint.asymmetry
    if mirrors is None:
        if case.is_dense:
            return "both", _OF_FEW_MASKED
        return "none", "too few images to tell whether a mirrored one is still of its class"
    same = (mirrors.left_right < _SAME, mirrors.up_down < _SAME)
    reason = (
        f"images differ from their mirror images by {mirrors.left_right:.2f} deviations (left and right) and "
        f"{mirrors.up_down:.2f} (up and down); below {_SAME} counts as the same"
    )
    return {
        (False, False): "none",
        (True, False): "horizontal",
        (False, True): "vertical",
        (True, True): "both",
    }[same], reason


def _decide_classified(case: Case, *, epochs: int) -> None:
    is_small = is_tiny(case)
    if not is_small:
        share = 0.35 if epochs < _MANY_PASSES else 0.2
        case.decide(
            "random_resized_crop", share, "random crops of photographs; smaller ones in long trainings"
        )
    elif is_folder_of_files(case.fingerprint.dataset):
        case.decide("random_resized_crop", 0.6, "crops that keep most of a small image")
    if case.fingerprint.channels == _COLOURS and case.reads_8_bits and not is_small:
        case.decide("rand_augment", 2, "two operations on colours and shapes for each image")
        if case.value("rand_augment"):
            strength = 5.0 if epochs < _MANY_PASSES else 7.0
            case.decide("rand_augment_magnitude", strength, "stronger in trainings of 100 epochs and more")
    if epochs >= _MANY_PASSES:
        case.decide("mixup", 0.2, f"{epochs} passes would learn the images by heart, but no blend of two")


def _decide_dense(case: Case) -> None:
    mirrors, is_8_bit = case.fingerprint.asymmetry, case.reads_8_bits
    if mirrors is None:
        case.decide("rotate", _ANY_TURN, _OF_FEW_MASKED)
    elif max(mirrors.left_right, mirrors.up_down, mirrors.quarter_turn) < _SAME:
        case.decide("rotate", _ANY_TURN, "the images have no top, as the comparison with turned copies says")
    else:
        case.decide("rotate", 15.0, "the images have a top, as the comparison with turned copies says")
    if is_8_bit:
        case.decide("augment", True, "random crops that are stretched, and brightness")
        case.decide("gamma", 0.3, "exposures differ between images")
    if case.value("rotate") == _ANY_TURN:
        _decide_bending(case)


def _decide_bending(case: Case) -> None:
    """Elastic deformation and noise, as of tissue under a microscope."""
    side = int(case.value("tile_size") or case.value("image_size") or case.shorter_side_px)
    if side < _SMALLEST_BENT_PX:
        return
    case.decide("elastic", round(side * _BENT_SHARE, 1), "images without a top often show soft things")
    case.decide("noise", 0.05, "and were often taken through a microscope, with noise")
