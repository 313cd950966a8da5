"""Optimiser, learning rate, warm-up, weight decay, smoothing and averaging."""

from math import sqrt

from drivetrain.auto.case import Case
from drivetrain.auto.rules.amount import starts_trained
from drivetrain.catalogue.models import is_external_model
from drivetrain.catalogue.tasks import task_info

__all__ = ["decide_optimisation"]

# SGD generalises better than Adam where networks with batch norm see many images (Wide ResNet, 2016, and
# every fast CIFAR-10 recipe since); with few images its rate is hard to choose, and AdamW is safe.
_SAMPLES_FOR_SGD = 10_000
_PASSES_FOR_SGD = 10
_NORMALISED = ("resnet", "cifar_resnet", "unet_same")
_REFERENCE_BATCH = 64
# At the reference batch; Adam's rate grows with the root of the batch, SGD's with the batch. For trained
# weights it is that of the recipe fine_tune: 0.001 for batches of 32.
_ADAM_RATES = {"own": 0.002, "dense": 0.001, "external": 0.0005, "trained": 0.001 * sqrt(2)}
_SGD_RATE, _SGD_RATE_TRAINED = 0.05, 0.01
_BACKBONE_RATE = 0.1
# Of fewer passes one for the head alone would be too large a part.
_PASSES_FOR_HEAD_FIRST = 2
_PASSES_FOR_SMOOTHING = 5
# The average should span a small part of the training: the rate falls to zero over the last part.
_AVERAGED_PART = 0.02
_UPDATES_FOR_AVERAGE = 500
_MOST_DECAY = 0.9999
# More than this between the largest and the smallest class counts as unbalanced.
_UNBALANCED = 4.0
_WARMUP_PART = 0.1
_LONGEST_WARMUP = 5.0


def decide_optimisation(case: Case, *, epochs: int, updates: int) -> None:
    """Sets everything that moves the weights, for a training of this length."""
    _decide_optimiser(case, epochs=epochs)
    _decide_rate(case)
    _decide_warmup(case, epochs=epochs)
    _decide_loss(case, epochs=epochs)
    if starts_trained(case):
        _decide_parts(case, epochs=epochs)
    if updates >= _UPDATES_FOR_AVERAGE:
        span = max(50.0, updates * _AVERAGED_PART)
        case.decide(
            "ema",
            round(min(_MOST_DECAY, 1 - 1 / span), 5),
            f"the average of the last 2 % of the {updates} updates is validated and kept",
        )


def _decide_optimiser(case: Case, *, epochs: int) -> None:
    has_many = case.train_samples >= _SAMPLES_FOR_SGD and epochs >= _PASSES_FOR_SGD
    if has_many and _is_normalised(case) and not _is_dense(case) and not starts_trained(case):
        case.decide("optimizer", "sgd", "networks with batch norm generalise best with SGD on many images")
        case.decide("optimizer_params", {"momentum": 0.9, "nesterov": True}, "the usual momentum")
        case.decide("weight_decay", 0.0005, "the usual value for SGD on images")
        return
    reason = "its steps do not depend on the scale of the gradient, so one rate suits most networks"
    case.decide("optimizer", "adamw", reason)
    if case.value("optimizer") == "adamw":
        decay = 0.01 if _is_dense(case) else 0.05
        case.decide("weight_decay", decay, "the usual value for AdamW on images")


def _decide_rate(case: Case) -> None:
    batch = global_batch(case)
    optimiser = case.value("optimizer")
    if optimiser == "sgd":
        at_reference = _SGD_RATE_TRAINED if starts_trained(case) else _SGD_RATE
        rate, how = at_reference * batch / _REFERENCE_BATCH, "grows with"
    elif optimiser in ("adam", "adamw"):
        kind = _rate_kind(case)
        rate, how = _ADAM_RATES[kind] * sqrt(batch / _REFERENCE_BATCH), "grows with the root of"
    else:
        return
    case.decide("learning_rate", float(f"{rate:.2g}"), f"it {how} the {batch} samples of an update")


def _rate_kind(case: Case) -> str:
    if starts_trained(case):
        return "trained"
    if _is_dense(case):
        return "dense"
    return "external" if is_external_model(str(case.value("model"))) else "own"


def _decide_warmup(case: Case, *, epochs: int) -> None:
    if case.value("lr_schedule") != "cosine":
        return
    length = round(min(_LONGEST_WARMUP, epochs * _WARMUP_PART), 2)
    case.decide(
        "lr_warmup_params",
        {"warmup_mode": "mask", "warmup_epochs": length},
        "the rate rises over the first tenth, at most five epochs, and falls to zero at the end",
    )


def _decide_loss(case: Case, *, epochs: int) -> None:
    if _is_dense(case):
        return
    counts = [count for count in case.fingerprint.class_counts if count]
    if counts and max(counts) > _UNBALANCED * min(counts):
        ratio = max(counts) / min(counts)
        reason = f"the largest class has {ratio:.0f} times as many images as the smallest"
        case.decide("class_weights", ("balanced",), reason)
    if epochs >= _PASSES_FOR_SMOOTHING:
        case.decide("label_smoothing", 0.1, "keeps the network from growing ever more certain")


def _decide_parts(case: Case, *, epochs: int) -> None:
    """Fine-tuning: the head first, then all at lower rates below."""
    if "backbone" in case.value("freeze"):
        return
    if not case.is_typed("layer_decay"):
        case.decide("backbone_rate", _BACKBONE_RATE, "trained layers need small steps, or they forget")
    if epochs > _PASSES_FOR_HEAD_FIRST:
        case.decide("head_first_epochs", 1, "a head that is new would first spoil the trained layers")


def global_batch(case: Case) -> int:
    """Samples of one weight update, by what was typed or decided."""
    if case.value("global_batch_size"):
        return int(case.value("global_batch_size"))
    accumulation = case.value("gradient_accumulation_count") or 1
    return int(case.value("micro_batch_size")) * int(case.value("replicas")) * int(accumulation)


def _is_dense(case: Case) -> bool:
    return task_info(case.fingerprint.task).has_dense_labels


def _is_normalised(case: Case) -> bool:
    return str(case.value("model")).startswith(_NORMALISED)
