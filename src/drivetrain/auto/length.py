"""Chooses the network and the number of epochs that a budget of time allows, by timing few updates."""

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil

from drivetrain.auto.case import Case
from drivetrain.auto.rules.amount import Amount, amount_of
from drivetrain.auto.rules.augmentation import views_of
from drivetrain.auto.rules.networks import Network, networks_for

__all__ = ["Length", "Time", "choose_length"]

# Timing costs a part of the budget, so it ends at the first network that fits.
_MOST_TIMED = 4
# After this share of the time that is left, the next network's time is estimated by its work.
_TIMING_SHARE = 0.25
# A pass forward costs about a third of a training step.
_FORWARD_SHARE = 1 / 3
# Predictions for images larger than a tile compute overlapping tiles.
_OVERLAP_WORK = 1.8
# Validations with their checkpoints and pictures get this share of the budget, and at most this many are
# made. A second was measured for the checkpoint of a ResNet-18 beside other work.
_VALIDATION_SHARE = 0.1
_MOST_VALIDATIONS = 25
_CHECKPOINT_S = 1.0
# Epochs assumed while networks are timed: augmentation is part of the time.
_ASSUMED_EPOCHS = 60

Time = Callable[[Network, int], float]
"""Seconds of a training sample, for a network and the number of epochs that the other rules assume."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """A network with the length of its training, and why; `why_epochs` is empty if the length was typed."""

    network: Network
    epochs: int
    validations: int
    why_network: str
    why_epochs: str = ""
    most_updates: int | None = None


def choose_length(case: Case, *, time: Time, left_s: Callable[[], float]) -> Length:
    """The network that computes most among those that see enough images in the time left.

    The case has its batch already, and no other decision.
    """
    networks, amount = networks_for(case), amount_of(case)
    typed = _typed_samples(case)
    if typed is not None and len(networks) == 1:
        return _as_typed(case, networks[0], why="the only candidate for these data and options")
    if typed is not None:
        amount = Amount(least=typed, most=typed)
    network, sample_s = _search(networks, amount=amount, time=time, left_s=left_s)
    why = _why_network(network, networks, sample_s=sample_s, amount=amount, left_s=left_s())
    if typed is not None:
        return _as_typed(case, network, why=why)
    return _timed_length(case, network, sample_s=sample_s, amount=amount, left_s=left_s(), why=why)


def _typed_samples(case: Case) -> int | None:
    """The samples that a typed length needs; None where the length is open."""
    updates, epochs = case.typed.get("max_updates"), case.typed.get("num_epochs")
    by_updates = None if updates is None else int(updates) * case.global_batch
    by_epochs = None if epochs is None else int(epochs) * case.epoch_samples
    return min((samples for samples in (by_updates, by_epochs) if samples is not None), default=None)


def _as_typed(case: Case, network: Network, *, why: str) -> Length:
    samples = _typed_samples(case)
    assert samples is not None
    epochs = ceil(samples / case.epoch_samples)
    follows = case.typed.get("num_epochs") is None
    return Length(
        network=network,
        epochs=epochs,
        validations=min(epochs, _MOST_VALIDATIONS),
        why_network=why,
        why_epochs=f"the epochs that --max-updates {case.typed['max_updates']} takes" if follows else "",
    )


def _search(
    networks: list[Network], *, amount: Amount, time: Time, left_s: Callable[[], float]
) -> tuple[Network, float]:
    """Times the network in the middle, then the one that its time suggests, until the suggestion is known."""
    seconds: dict[int, float] = {}
    place, begun_s = len(networks) // 2, left_s()
    while len(seconds) < _MOST_TIMED:
        seconds[place] = time(networks[place], _ASSUMED_EPOCHS)
        suggested = _suggested(networks, seconds, last=place, amount=amount, left_s=left_s())
        if suggested in seconds:
            return networks[suggested], seconds[suggested]
        if left_s() < begun_s * (1 - _TIMING_SHARE):
            estimated = seconds[place] / networks[place].work * networks[suggested].work
            return networks[suggested], estimated
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


def _why_network(
    network: Network, networks: list[Network], *, sample_s: float, amount: Amount, left_s: float
) -> str:
    if len(networks) == 1:
        return "the only candidate for these data and options"
    affordable = round(left_s * (1 - _VALIDATION_SHARE) / sample_s)
    if not _fits(sample_s, amount=amount, left_s=left_s):
        return (
            f"{network}: of {len(networks)} candidates one of the fastest, as the time is enough for "
            f"{affordable} images only"
        )
    return (
        f"{network}: of {len(networks)} candidates one of the largest that see at least {amount.least} "
        f"images in the time left; it could see {affordable}"
    )


def _timed_length(
    case: Case, network: Network, *, sample_s: float, amount: Amount, left_s: float, why: str
) -> Length:
    affordable = left_s * (1 - _VALIDATION_SHARE) / sample_s
    samples = min(affordable, amount.most)
    epochs = max(1, int(samples / case.epoch_samples))
    one_validation_s = _CHECKPOINT_S + _validation_work(case, network) * sample_s * _FORWARD_SHARE
    affordable_validations = int(left_s * _VALIDATION_SHARE / one_validation_s)
    limit = "more hardly helps" if affordable > amount.most else f"{left_s:.0f} s are left for training"
    return Length(
        network=network,
        epochs=epochs,
        validations=max(1, min(_MOST_VALIDATIONS, epochs, affordable_validations)),
        why_network=why,
        why_epochs=f"an image takes {sample_s * 1e3:.3g} ms on {case.device.name}, and {limit}",
        most_updates=max(1, int(samples / case.global_batch)) if samples < case.epoch_samples else None,
    )


def _validation_work(case: Case, network: Network) -> float:
    """The work of one validation, in passes forward over images as they are trained on."""
    height, width = case.fingerprint.height_px.median, case.fingerprint.width_px.median
    tiles = height * width / network.side_px**2 if "tile_size" in network.options else 1.0
    return case.validation_samples * views_of(case) * (tiles * _OVERLAP_WORK if tiles > 1 else 1.0)
