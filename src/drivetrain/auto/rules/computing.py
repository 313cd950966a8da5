"""Precision and compiling, which the run itself decides for its device."""

from drivetrain.auto.case import Case

__all__ = ["decide_computing"]


def decide_computing(case: Case) -> None:
    """Leaves both to their own `auto`, and says what that does here."""
    device = case.device
    bits = (
        "in 16 bits where it has bfloat16, with weights in 32 bits" if device.is_accelerator else "in 32 bits"
    )
    case.decide("precision", "auto", f"on {device.name}, the run computes {bits}")
    case.decide(
        "compile",
        "auto",
        "the run compiles if it measures, before the first update, that this saves time in all its updates",
    )
