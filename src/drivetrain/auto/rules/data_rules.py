"""How images are normalised, and which samples are held out for validation."""

from drivetrain.auto.case import Case
from drivetrain.catalogue.data_sets import is_folder_of_files
from drivetrain.catalogue.libraries import is_library_model
from drivetrain.catalogue.models import is_external_model

__all__ = ["decide_data"]

# Below this deviation a channel is nearly constant, and dividing by it would only enlarge its noise.
_LEAST_DEVIATION = 0.02
_DIGITS = 4
_EIGHT_BITS = 8


def decide_data(case: Case) -> None:
    """Sets channels, normalisation and how validation images are held out."""
    _decide_channels(case)
    _decide_normalisation(case)
    _decide_split(case)


def _decide_channels(case: Case) -> None:
    """Grey images are read in grey; a library's model expects colours."""
    fingerprint = case.fingerprint
    is_read_in_colour = is_folder_of_files(fingerprint.dataset) and not is_external_model(
        str(case.value("model"))
    )
    if fingerprint.channels == 1 and fingerprint.bits == _EIGHT_BITS and is_read_in_colour:
        case.decide("channels", 1, "all images are grey")


def _decide_normalisation(case: Case) -> None:
    fingerprint = case.fingerprint
    if fingerprint.bits != _EIGHT_BITS or is_library_model(str(case.value("model"))):
        return
    if len(fingerprint.mean) != (case.value("channels") or len(fingerprint.mean)):
        return
    case.decide(
        "normalisation",
        {
            "mean": [round(value, _DIGITS) for value in fingerprint.mean],
            "std": [round(max(value, _LEAST_DEVIATION), _DIGITS) for value in fingerprint.std],
        },
        f"mean and deviation of the training images, measured on {fingerprint.measured} of them",
    )


def _decide_split(case: Case) -> None:
    """Every class keeps its share among the held-out images; folds do that anyway."""
    fingerprint = case.fingerprint
    holds_out = case.value("folds") is None and case.value("validation_fraction") != 0
    if fingerprint.task != "classification" or fingerprint.samples.get("validation") or not holds_out:
        return
    reason = "every class has its share of the held-out images"
    if fingerprint.groups is not None:
        reason += f", as near as {fingerprint.groups} whole groups allow"
    case.decide("split_scheme", "stratified", reason)
