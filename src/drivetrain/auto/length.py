"""Chooses the network and the number of epochs that a budget of time allows, by timing few updates."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from drivetrain.auto.case import Case
from drivetrain.auto.rules.amount import Amount, amount_of
from drivetrain.auto.rules.networks import Network, networks_for

__all__ = ["Length", "Time", "choose_length"]

# Timing costs a part of the budget, so it ends at the first network that fits.
_MOST_TIMED = 4
# A pass forward costs about a third of a training step.
_FORWARD_SHARE = 1 / 3
# Validations and pictures get this share of the budget, and at most this many are made.
_VALIDATION_SHARE = 0.1
_MOST_VALIDATIONS = 25
# Epochs assumed while networks are timed: augmentation is part of the time.
_ASSUMED_EPOCHS = 60

Time = Callable[[Network, int], float]
"""Seconds of a training sample, for a network and the number of epochs that the other rules assume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """A network with the length of its training."""

    network: Network
    epochs: int
    validations: int
    reason: str
    most_updates: int | None = None


def choose_length(case: Case, *, time: Time, left_s: Callable[[], float]) -> Length:
    """The network that computes most among those that see enough images in the time left."""
    networks, amount = networks_for(case), amount_of(case)
    typed = _typed_samples(case)
    if typed is not None and len(networks) == 1:
        return _as_typed(case, networks[0])
    if typed is not None:
        amount = Amount(least=typed, most=typed)
    network, sample_s = _search(networks, amount=amount, time=time, left_s=left_s)
    if typed is not None:
        return _as_typed(case, network)
    return _timed_length(case, network, sample_s=sample_s, amount=amount, left_s=left_s())


def _typed_samples(case: Case) -> int | None:
    """The samples that a typed length needs; None where the length is open."""
    if case.is_typed("max_updates"):
        return int(case.value("max_updates")) * int(case.value("micro_batch_size"))
    return int(case.value("num_epochs")) * case.train_samples if case.is_typed("num_epochs") else None


def _as_typed(case: Case, network: Network) -> Length:
    epochs = int(case.value("num_epochs"))
    if case.is_typed("max_updates"):
        batch = int(network.options.get("micro_batch_size", case.value("micro_batch_size")))
        epochs = min(epochs, ceil(int(case.value("max_updates")) * batch / case.train_samples))
    return Length(network=network, epochs=epochs, validations=min(epochs, _MOST_VALIDATIONS), reason="")


def _search(
    networks: list[Network], *, amount: Amount, time: Time, left_s: Callable[[], float]
) -> tuple[Network, float]:
    """Times the network in the middle, then the one that its time suggests, until the suggestion is known."""
    seconds: dict[int, float] = {}
    place = len(networks) // 2
    while len(seconds) < _MOST_TIMED:
        seconds[place] = time(networks[place], _ASSUMED_EPOCHS)
        suggested = _suggested(networks, seconds, last=place, amount=amount, left_s=left_s())
        if suggested in seconds:
            return networks[suggested], seconds[suggested]
        place = suggested
    # The slowest of the timed ones that fits, or the fastest.
    fitting = [p for p in seconds if _fits(seconds[p], amount=amount, left_s=left_s())]
    place = min(fitting) if fitting else max(seconds)
    return networks[place], seconds[place]


def _suggested(
    networks: list[Network], seconds: dict[int, float], *, last: int, amount: Amount, left_s: float
) -> int:
    """The first network, by falling work, that sees enough images; its time follows from that of `last`."""
    per_work = seconds[last] / networks[last].work
    for place, network in enumerate(networks):
        if _fits(seconds.get(place, per_work * network.work), amount=amount, left_s=left_s):
            return place
    return len(networks) - 1


def _fits(sample_s: float, *, amount: Amount, left_s: float) -> bool:
    return sample_s * amount.least <= left_s * (1 - _VALIDATION_SHARE)


def _timed_length(case: Case, network: Network, *, sample_s: float, amount: Amount, left_s: float) -> Length:
    affordable = left_s * (1 - _VALIDATION_SHARE) / sample_s
    samples = min(affordable, amount.most)
    epochs = max(1, int(samples / case.train_samples))
    one_validation_s = max(1e-3, case.validation_samples * sample_s * _FORWARD_SHARE)
    affordable_validations = int(left_s * _VALIDATION_SHARE / one_validation_s)
    why = "more would hardly help" if affordable > amount.most else f"{left_s:.0f} s are left for them"
    batch = int(network.options.get("micro_batch_size", case.value("micro_batch_size")))
    is_short = samples < case.train_samples
    return Length(
        network=network,
        epochs=epochs,
        validations=max(1, min(_MOST_VALIDATIONS, epochs, affordable_validations)),
        reason=f"an image takes {sample_s * 1e3:.3g} ms here; {why}",
        most_updates=max(1, int(samples / batch)) if is_short else None,
    )
