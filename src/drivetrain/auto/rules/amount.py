"""How many images a training should see, between too few to learn and more than helps."""

from dataclasses import dataclass
from math import sqrt

from drivetrain.auto.case import Case

__all__ = ["Amount", "amount_of", "starts_trained"]

# Up to here the number of passes counts; of more images each pass is worth more, so fewer are needed.
_SMALL_SET = 10_000


@dataclass(frozen=True, slots=True)
class Amount:
    """Images to see in the training: a smaller network is chosen rather than fewer than `least`."""

    least: int
    most: int


def amount_of(case: Case) -> Amount:
    """The bounds for a case."""
    samples = case.train_samples
    if case.is_dense:
        # Every pixel is an example, so a few images are a lot of data; updates are what counts.
        return Amount(least=2000 + 20 * samples, most=16_000 + 200 * samples)
    effective = samples if samples <= _SMALL_SET else round(sqrt(samples * _SMALL_SET))
    if starts_trained(case):
        return Amount(least=5 * effective, most=40 * effective)
    return Amount(least=50 * effective, most=300 * effective)


def starts_trained(case: Case) -> bool:
    """Whether the network starts from trained weights."""
    return case.value("init_from") is not None or str(case.value("pretrained")).lower() != "false"
