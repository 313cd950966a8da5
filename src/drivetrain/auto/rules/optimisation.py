"""Optimiser, learning rate, warm-up, weight decay, class weights, smoothing and averaging."""

from math import sqrt

from drivetrain.auto.case import Case
from drivetrain.auto.rules.amount import starts_trained
from drivetrain.auto.rules.batch import BATCH_NORMED
from drivetrain.catalogue.models import is_external_model
from drivetrain.recipe.fields import plain_value
from drivetrain.recipe.params import OPTIMIZER_KEYS

__all__ = ["decide_optimisation"]

# SGD generalises better than Adam where networks with batch norm see many images (Wide ResNet, 2016, and
# every fast CIFAR-10 recipe since); with few images its rate is hard to choose, and AdamW is safe.
_SAMPLES_FOR_SGD = 10_000
_PASSES_FOR_SGD = 10
_WHY = {
    "sgd": "networks with batch norm generalise best with SGD on many images",
    "adamw": "its steps do not depend on the scale of the gradient, so one rate suits most networks",
}
# Each pixel of a mask is an example, so updates of few images have as many as others of many.
_REFERENCE_BATCH, _DENSE_REFERENCE_BATCH = 64, 8
# At the reference batch; the rate of Adam and RMSprop grows with the root of the batch, SGD's with the
# batch. For trained weights it is that of the recipe fine_tune: 0.001 for batches of 32.
_ADAM_RATES = {"own": 0.002, "dense": 0.001, "external": 0.0005, "trained": 0.001 * sqrt(2)}
_SGD_RATE, _SGD_RATE_TRAINED = 0.05, 0.01
# LARS is made for large batches, with a rate in proportion; at the reference batch it is the plain default.
_LARS_RATE = 0.1
_BACKBONE_RATE = 0.1
# Of fewer passes one for the head alone would be too large a part.
_PASSES_FOR_HEAD_FIRST = 2
_DECAY, _DENSE_DECAY = 0.05, 0.01
_L2 = 0.0005
_PASSES_FOR_SMOOTHING = 5
# The average should span a small part of the training: the rate falls to zero over the last part.
_AVERAGED_PART = 0.02
_SHORTEST_AVERAGE = 50.0
_UPDATES_FOR_AVERAGE = 500
_MOST_DECAY = 0.9999
# More than this between the largest and the smallest class counts as unbalanced.
_UNBALANCED = 4.0
_WARMUP_PART = 0.1
_LONGEST_WARMUP = 5.0


def decide_optimisation(case: Case, *, epochs: int, passes: float, updates: int) -> None:
    """Sets everything that moves the weights, for a training of this length in passes over the images."""
    _decide_optimiser(case, epochs=epochs)
    _decide_decay(case)
    _decide_rate(case)
    _decide_warmup(case, passes=passes)
    _decide_loss(case, epochs=epochs)
    if starts_trained(case):
        _decide_parts(case, epochs=epochs)
    _decide_average(case, updates=updates)


def _decide_optimiser(case: Case, *, epochs: int) -> None:
    keys = set(plain_value(case.typed.get("optimizer_params")) or ())
    wished = ("sgd", "adamw") if _suits_sgd(case, epochs=epochs) else ("adamw", "sgd")
    # Typed parameters choose the optimiser to which they belong.
    fitting = [name for name in wished if keys <= set(OPTIMIZER_KEYS[name])]
    if fitting:
        case.decide("optimizer", fitting[0], _WHY[fitting[0]] if not keys else "it has the typed parameters")
    if case.value("optimizer") == "sgd":
        case.decide("optimizer_params", {"momentum": 0.9, "nesterov": True}, "the usual momentum")


def _suits_sgd(case: Case, *, epochs: int) -> bool:
    has_many = case.train_samples >= _SAMPLES_FOR_SGD and epochs >= _PASSES_FOR_SGD
    return has_many and _is_normalised(case) and not case.is_dense and not starts_trained(case)


def _decide_decay(case: Case) -> None:
    if case.is_typed("weight_decay") or case.is_typed("l2_regularization"):
        return
    if case.value("optimizer") == "sgd":
        case.decide("l2_regularization", _L2, "the usual weight decay of SGD, which is an L2 penalty")
    elif case.value("optimizer") == "adamw":
        decay = _DENSE_DECAY if case.is_dense else _DECAY
        case.decide("weight_decay", decay, "the usual value for AdamW on images")


def _decide_rate(case: Case) -> None:
    batch = case.global_batch
    optimiser = case.value("optimizer")
    if _has_own_rate(case):
        return
    if optimiser == "sgd":
        at_reference = _SGD_RATE_TRAINED if starts_trained(case) else _SGD_RATE
        rate, how = at_reference * batch / _REFERENCE_BATCH, "grows with"
    elif optimiser == "lars":
        rate, how = _LARS_RATE * batch / _REFERENCE_BATCH, "grows with"
    else:
        kind = _rate_kind(case)
        reference = _DENSE_REFERENCE_BATCH if kind == "dense" else _REFERENCE_BATCH
        rate, how = _ADAM_RATES[kind] * sqrt(batch / reference), "grows with the root of"
    case.decide("learning_rate", float(f"{rate:.2g}"), f"it {how} the {batch} samples of an update")


def _has_own_rate(case: Case) -> bool:
    """Whether the parameters of a typed schedule set the rate."""
    params = plain_value(case.typed.get("lr_schedule_params")) or {}
    return "initial_learning_rate" in params or "values" in params


def _rate_kind(case: Case) -> str:
    if starts_trained(case):
        return "trained"
    if case.is_dense:
        return "dense"
    return "external" if is_external_model(str(case.value("model"))) else "own"


def _decide_warmup(case: Case, *, passes: float) -> None:
    if case.value("lr_schedule") != "cosine":
        return
    length = min(_LONGEST_WARMUP, passes * _WARMUP_PART)
    case.decide(
        "lr_warmup_params",
        {"warmup_mode": "mask", "warmup_epochs": float(f"{length:.3g}")},
        "the rate rises over the first tenth, at most five epochs, and falls to zero at the end",
    )


def _decide_loss(case: Case, *, epochs: int) -> None:
    if case.is_dense:
        return
    counts = [count for count in case.fingerprint.class_counts if count]
    if counts and max(counts) > _UNBALANCED * min(counts):
        ratio = max(counts) / min(counts)
        reason = f"the largest class has {ratio:.0f} times as many images as the smallest"
        case.decide("class_weights", ("balanced",), reason)
    if epochs >= _PASSES_FOR_SMOOTHING:
        case.decide("label_smoothing", 0.1, "keeps the network from growing ever more certain")


def _decide_average(case: Case, *, updates: int) -> None:
    if updates < _UPDATES_FOR_AVERAGE:
        return
    span = max(_SHORTEST_AVERAGE, updates * _AVERAGED_PART)
    decay = round(min(_MOST_DECAY, 1 - 1 / span), 5)
    reason = f"the average over about the last {round(1 / (1 - decay))} of {updates} updates is validated"
    case.decide("ema", decay, reason)


def _decide_parts(case: Case, *, epochs: int) -> None:
    """Fine-tuning: the head first, then all at lower rates below."""
    if "backbone" in case.value("freeze"):
        return
    if not case.is_typed("layer_decay"):
        case.decide("backbone_rate", _BACKBONE_RATE, "trained layers need small steps, or they forget")
    if epochs > _PASSES_FOR_HEAD_FIRST:
        case.decide("head_first_epochs", 1, "a head that is new would first spoil the trained layers")


def _is_normalised(case: Case) -> bool:
    return str(case.value("model")).startswith(BATCH_NORMED)
