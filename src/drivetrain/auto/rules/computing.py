"""Precision, compiling and loader workers, as the device needs them."""

from drivetrain.auto.budget import planned_s
from drivetrain.auto.case import Case

__all__ = ["decide_computing"]

# Compiling takes up to a minute, and measuring whether it pays needs the compiled code.
_SHORTEST_TO_COMPILE_S = 600.0
_DECODED_IN_EACH_PASS = ("image-folder", "image-table")
_MOST_WORKERS = 16


def decide_computing(case: Case) -> None:
    """Leaves precision to its own `auto`, and keeps an accelerator from waiting for compiler or loader."""
    device = case.device
    bits = (
        "in 16 bits where it has bfloat16, with weights in 32 bits" if device.is_accelerator else "in 32 bits"
    )
    case.decide("precision", "auto", f"on {device.name}, the run computes {bits}")
    _decide_compile(case)
    if device.is_accelerator and _decodes_in_each_pass(case):
        _decide_loading(case)


def _decide_compile(case: Case) -> None:
    has_length = case.typed.get("num_epochs") is not None or case.typed.get("max_updates") is not None
    planned = planned_s(case.typed.get("budget"), max_time=case.typed.get("max_time"))
    if not has_length and planned < _SHORTEST_TO_COMPILE_S:
        case.decide("compile", "off", f"compiling may take a minute of the {planned:.0f} s")
        return
    case.decide(
        "compile",
        "auto",
        "the run compiles if it measures, before the first update, that this saves time in all its updates",
    )


def _decodes_in_each_pass(case: Case) -> bool:
    """Whether images are decoded, and cropped or cut into tiles, in every pass over them."""
    if case.value("data_placement") == "resident":
        return False
    is_cropped = case.value("random_resized_crop") is not None and case.value("augment") is not False
    is_decoded = case.fingerprint.dataset in _DECODED_IN_EACH_PASS
    return (is_cropped and is_decoded) or case.value("tile_size") is not None


def _decide_loading(case: Case) -> None:
    """All cores decode, and the device does the rest of the augmentation."""
    replicas = int(case.value("replicas"))
    workers = max(1, min(_MOST_WORKERS, (case.device.cores - replicas) // replicas))
    case.decide("num_workers", workers, f"{case.device.cores} CPU cores decode images for the device")
    case.decide("accelerator_side_preprocess", True, "the device augments faster than the cores")
    if case.reads_8_bits and case.value("accelerator_side_preprocess"):
        case.decide("eight_bit_transfer", True, "8-bit images take a quarter of the bytes on their way")
