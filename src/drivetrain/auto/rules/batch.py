"""How many images an update takes, and how replicas share them."""

from drivetrain.auto.case import Case

__all__ = ["BATCH_NORMED", "decide_batch", "decide_norm_group", "decide_remainder"]

# Own networks with batch norm in every variant that rules choose.
BATCH_NORMED = (
    "resnet",
    "cifar_resnet",
    "inception_v3",
    "xception",
    "mobilenet",
    "densenet",
    "efficientnet",
    "unet_same",
)

_UPDATES_PER_PASS = 10
_LARGEST, _SMALLEST = 128, 8
# The default skips images that do not fill an update, others in each epoch.
_MOST_SKIPPED = 0.05
# U-Nets for biomedical images are trained with 2 (nnU-Net) to 16 large tiles.
_DENSE_LARGEST, _DENSE_SMALLEST = 8, 2


def decide_batch(case: Case) -> None:
    """Sets the micro-batch so that an update takes the wished images on any number of replicas."""
    wished, reason = _wished(case)
    replicas = int(case.value("replicas"))
    asked = case.value("global_batch_size")
    if asked is not None:
        share = max(1, int(asked) // replicas)
        micro = _largest_divisor(share, at_most=wished)
        case.decide("micro_batch_size", micro, f"divides the {asked} samples of an update")
        return
    accumulation = int(case.value("gradient_accumulation_count") or 1)
    share = max(1, wished // (replicas * accumulation))
    if replicas == 1:
        how = "" if accumulation == 1 else f"an update takes {accumulation} of them; "
        case.decide("micro_batch_size", share, how + reason)
        return
    case.decide("micro_batch_size", share, f"the share of one of {replicas} replicas; {reason}")
    if not case.is_typed("micro_batch_size"):
        case.decide("global_batch_size", share * replicas, reason)


def decide_norm_group(case: Case) -> None:
    """Lets batch norm see the images of all replicas together, as one process would."""
    replicas = int(case.value("replicas"))
    if replicas > 1 and not case.is_typed("model") and str(case.value("model")).startswith(BATCH_NORMED):
        reason = "batch norm sees the images of all replicas together, as in one process"
        case.decide("dbn_replica_group_size", replicas, reason)


def decide_remainder(case: Case) -> None:
    """Says what happens to images that do not fill an update, where they are many of all."""
    images, batch = case.train_samples, case.global_batch
    left = images % batch
    if images < batch:
        case.decide("remainder", "pad", f"{images} images do not fill an update of {batch}")
    elif left > _MOST_SKIPPED * images and not case.is_typed("weight_updates_per_epoch"):
        reason = (
            f"otherwise {left} of {images} images, which do not fill an update, are skipped in each epoch"
        )
        case.decide("remainder", "pad", reason)


def _wished(case: Case) -> tuple[int, str]:
    images = case.train_samples
    if case.is_dense:
        wished = max(_DENSE_SMALLEST, min(_DENSE_LARGEST, images // 2))
        return wished, f"few large images for each update, at most half of the {images}"
    wished = max(_SMALLEST, min(_LARGEST, images // _UPDATES_PER_PASS))
    power = 1 << (wished.bit_length() - 1)
    if power == _SMALLEST:
        return power, f"the fewest with which statistics of a batch are of use; there are {images} images"
    return power, f"a power of two, with at least {_UPDATES_PER_PASS} updates in a pass over {images} images"


def _largest_divisor(number: int, *, at_most: int) -> int:
    return max(size for size in range(1, min(number, at_most) + 1) if number % size == 0)
