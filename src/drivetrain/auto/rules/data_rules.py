"""How images are normalised, and which samples are held out for validation."""

from drivetrain.auto.case import Case
from drivetrain.catalogue.data_sets import is_folder_of_files
from drivetrain.catalogue.libraries import is_library_model
from drivetrain.catalogue.models import is_external_model

__all__ = ["decide_data", "decide_split"]

# Below this deviation a channel is nearly constant, and dividing by it would only enlarge its noise.
_LEAST_DEVIATION = 0.02
_DIGITS = 4
_COLOURS = 3
# A fifth for validation; of many images fewer, as this many tell an accuracy to less than a percent.
_SHARE, _ENOUGH_VALIDATION = 0.2, 5_000
# Of at most this many images, more than a fifth may be held out for the sake of a small class.
_FEW_IMAGES = 200


def decide_split(case: Case) -> None:
    """Sets the share of the training images that are held out, where there are none for validation."""
    images = case.fingerprint.samples["train"]
    if "validation" in case.fingerprint.samples or case.typed.get("folds") is not None or images < 2:
        return
    share = min(_SHARE, round(_ENOUGH_VALIDATION / images, _DIGITS))
    needed = _images_of_all_classes(case)
    if needed is not None and needed > round(share * images):
        reason = f"{needed} of {images} images are the fewest in which each class with two images has one"
        case.decide("validation_fraction", round(needed / images, _DIGITS), reason)
        return
    reason = (
        "the data have no validation images, so every fifth one is held out"
        if share == _SHARE
        else f"the data have no validation images; {_ENOUGH_VALIDATION} tell an accuracy to about a percent"
    )
    case.decide("validation_fraction", share, reason)


def _images_of_all_classes(case: Case) -> int | None:
    """The fewest images that a stratified split must hold out to have one of each class with two or more.

    None where images are many, or are not held out by class.
    """
    found = case.fingerprint
    counts = [count for count in found.class_counts if count > 1]
    is_by_class = not case.is_dense and found.groups is None
    is_known = sum(found.class_counts) == found.samples["train"] <= _FEW_IMAGES
    if not (counts and is_by_class and is_known) or case.typed.get("split_scheme", "stratified") == "random":
        return None
    # The images of a class of n stand at 1/2n, 3/2n, ... in the order in which they are held out.
    smallest = min(counts)
    return sum((count // smallest + 1) // 2 for count in counts)


def decide_data(case: Case) -> None:
    """Sets the white of 16-bit images, channels, normalisation and how validation images are held out."""
    _decide_white(case)
    _decide_channels(case)
    _decide_normalisation(case)
    _decide_scheme(case)


def _decide_white(case: Case) -> None:
    level = case.fingerprint.white_level
    if level is not None:
        bits = level.bit_length()
        case.decide("white_level", level, f"the 16-bit grey images that were looked at fill {bits} bits only")


def _decide_channels(case: Case) -> None:
    """Grey images are read in grey; a library's model, or one of the user's, is made for colours."""
    fingerprint = case.fingerprint
    is_choice = is_folder_of_files(fingerprint.dataset) and not is_external_model(str(case.value("model")))
    if is_choice and fingerprint.channels == 1 and fingerprint.read_channels == _COLOURS:
        case.decide("channels", 1, "all images are grey")


def _decide_normalisation(case: Case) -> None:
    fingerprint = case.fingerprint
    if not case.reads_8_bits or is_library_model(str(case.value("model"))):
        return
    channels = int(case.value("channels") or fingerprint.read_channels)
    # Grey images that are read in colour have equal channels.
    copies = channels if len(fingerprint.mean) == 1 else 1
    raised = min(fingerprint.std) < _LEAST_DEVIATION
    floor = f"; a deviation below {_LEAST_DEVIATION} is raised to it, or noise would grow" if raised else ""
    if len(fingerprint.mean) * copies != channels:
        return
    case.decide(
        "normalisation",
        {
            "mean": [round(value, _DIGITS) for value in fingerprint.mean] * copies,
            "std": [round(max(value, _LEAST_DEVIATION), _DIGITS) for value in fingerprint.std] * copies,
        },
        f"mean and deviation of the training images, measured on {fingerprint.measured} of them{floor}",
    )


def _decide_scheme(case: Case) -> None:
    """Every class keeps its share among the held-out images; folds do that anyway."""
    fingerprint = case.fingerprint
    holds_out = case.value("folds") is None and case.value("validation_fraction") != 0
    if case.is_dense or fingerprint.samples.get("validation") or not holds_out:
        return
    reason = "every class has its share of the held-out images"
    if fingerprint.groups is not None:
        reason += f", as near as {fingerprint.groups} whole groups allow"
    case.decide("split_scheme", "stratified", reason)
