"""Applies all rules to a case: network, length, data, augmentation, optimisation."""

from collections.abc import Callable, Mapping
from typing import Any

from drivetrain.auto.case import Case, DeviceFacts
from drivetrain.auto.length import Length, choose_length
from drivetrain.auto.rules.augmentation import decide_augmentation
from drivetrain.auto.rules.batch import decide_batch, decide_norm_group, decide_remainder
from drivetrain.auto.rules.computing import decide_computing
from drivetrain.auto.rules.data_rules import decide_data, decide_split
from drivetrain.auto.rules.networks import Network
from drivetrain.auto.rules.optimisation import decide_optimisation
from drivetrain.data.fingerprint.fingerprint import Fingerprint
from drivetrain.plan.events import nearest_divisor, parse_logs_per_epoch

__all__ = ["decide"]

# A typed pace that is longer than the training makes it longer by at most this factor.
_MOST_LONGER = 1.5

TimeOptions = Callable[[Mapping[str, Any]], float]
"""Seconds of a training sample with these options set by rules."""


def decide(
    fingerprint: Fingerprint,
    *,
    device: DeviceFacts,
    typed: Mapping[str, Any],
    time: TimeOptions,
    left_s: Callable[[], float],
) -> Case:
    """The case with every option that the rules set."""

    def fresh() -> Case:
        case = Case(fingerprint=fingerprint, device=device, typed=typed)
        decide_split(case)
        decide_batch(case)
        return case

    def time_network(network: Network, epochs: int) -> float:
        case = fresh()
        _decide_all(case, network, why="", epochs=int(typed.get("num_epochs") or epochs))
        return time({field: decision.value for field, decision in case.decisions.items()})

    length = choose_length(fresh(), time=time_network, left_s=left_s)
    case = fresh()
    _decide_all(
        case,
        length.network,
        why=length.why_network,
        epochs=length.epochs,
        updates=length.most_updates,
    )
    _decide_length(case, length)
    return case


def _decide_all(case: Case, network: Network, *, why: str, epochs: int, updates: int | None = None) -> None:
    for field, value in network.options.items():
        case.decide(field, value, network.reasons.get(field, why))
    decide_norm_group(case)
    decide_remainder(case)
    decide_data(case)
    decide_augmentation(case, epochs=epochs)
    passes = epochs if updates is None else updates * case.global_batch / case.epoch_samples
    decide_optimisation(
        case,
        epochs=epochs,
        passes=passes,
        updates=updates or epochs * case.epoch_samples // case.global_batch,
    )
    decide_computing(case)


def _decide_length(case: Case, length: Length) -> None:
    """How long to train, and how often to validate."""
    every = _epochs_between_logs(case, length)
    epochs = _whole_periods(case, length, every=every)
    if length.why_epochs:
        case.decide("num_epochs", epochs, length.why_epochs)
    if length.most_updates is not None:
        case.decide("max_updates", length.most_updates, "the time is not enough to see all images once")
        return
    if every > 1:
        case.decide(
            "logs_per_epoch",
            f"1/{every}",
            f"{epochs // every} logs, each with a validation, in {epochs} epochs",
        )


def _whole_periods(case: Case, length: Length, *, every: int) -> int:
    """The epochs as a multiple of those between two logs, without training much longer than was found."""
    is_capped = length.most_updates is not None or case.typed.get("max_updates") is not None
    if is_capped:
        return -(-length.epochs // every) * every
    if length.epochs < every <= _MOST_LONGER * length.epochs:
        return every
    # The plan refuses a typed pace that is longer than the training, and names one that works.
    return length.epochs - length.epochs % every or length.epochs


def _epochs_between_logs(case: Case, length: Length) -> int:
    """Logs must divide a training evenly: the epochs can be rounded unless a length was typed."""
    if case.typed.get("logs_per_epoch") is not None:
        logs = parse_logs_per_epoch(str(case.typed["logs_per_epoch"]))
        return (1 / logs).numerator if 0 < logs < 1 else 1
    every = max(1, length.epochs // length.validations)
    if case.is_typed("num_epochs") or case.is_typed("max_updates"):
        return nearest_divisor(length.epochs, target=every)
    return every
