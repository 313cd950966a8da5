"""Applies all rules to a case: network, length, data, augmentation, optimisation."""

from collections.abc import Callable, Mapping
from typing import Any

from drivetrain.auto.case import Case, DeviceFacts
from drivetrain.auto.length import Length, choose_length
from drivetrain.auto.rules.augmentation import decide_augmentation
from drivetrain.auto.rules.data_rules import decide_data
from drivetrain.auto.rules.networks import Network
from drivetrain.auto.rules.optimisation import decide_optimisation, global_batch
from drivetrain.data.fingerprint.fingerprint import Fingerprint

__all__ = ["decide"]

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
        return Case(fingerprint=fingerprint, device=device, typed=typed)

    def time_network(network: Network, epochs: int) -> float:
        case = fresh()
        _decide_all(case, network, epochs=epochs)
        return time({field: decision.value for field, decision in case.decisions.items()})

    length = choose_length(fresh(), time=time_network, left_s=left_s)
    case = fresh()
    _decide_all(case, length.network, epochs=length.epochs)
    _decide_length(case, length)
    return case


def _decide_all(case: Case, network: Network, *, epochs: int) -> None:
    reason = f"{network} is the largest of the candidates that learns enough in the time there is"
    for field, value in network.options.items():
        case.decide(field, value, reason if field == "model" else f"goes with {network.options['model']}")
    decide_data(case)
    decide_augmentation(case, epochs=epochs)
    decide_optimisation(case, epochs=epochs, updates=epochs * case.train_samples // global_batch(case))
    if case.train_samples < global_batch(case):
        case.decide("remainder", "pad", "the images do not fill a batch")


def _decide_length(case: Case, length: Length) -> None:
    """How long to train, and how often to validate."""
    if length.reason:
        case.decide("num_epochs", length.epochs, length.reason)
    if length.most_updates is not None:
        case.decide("max_updates", length.most_updates, "the time is not enough for all images once")
        return
    every = max(1, length.epochs // length.validations)
    if every > 1:
        case.decide(
            "logs_per_epoch",
            f"1/{every}",
            f"{length.validations} logs with a validation in the whole training",
        )
