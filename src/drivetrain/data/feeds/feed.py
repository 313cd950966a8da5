"""Chooses between resident data (all in device memory) and streaming through loader workers."""

import numpy as np
import torch

from drivetrain.core.errors import BadInputError
from drivetrain.data.augment.chain import AnyAugmentation, augments_at_decode
from drivetrain.data.feeds.evaluation_feed import EvaluationFeed
from drivetrain.data.feeds.loader import check_num_workers, default_num_workers
from drivetrain.data.feeds.micro_batch import Feed, MicroBatch
from drivetrain.data.feeds.resident import ResidentFeed
from drivetrain.data.feeds.stream import StreamFeed
from drivetrain.data.order import SampleOrder
from drivetrain.data.preprocess import Preparation
from drivetrain.data.source import Source
from drivetrain.ranks.replica_group import ALONE, ReplicaGroup
from drivetrain.recipe.schema import Placement

__all__ = [
    "EvaluationFeed",
    "Feed",
    "MicroBatch",
    "ResidentFeed",
    "StreamFeed",
    "fits_on_device",
    "make_feed",
]

# Data are resident by default only if they take at most a quarter of the free memory: the rest is left for
# the model and its activations.
_RESIDENT_SHARE = 4
# Only a few, because they are fetched twice at every start.
_PROBED_SAMPLES = 8


def make_feed(
    source: Source,
    *,
    order: SampleOrder,
    preprocess: Preparation,
    micro_batch_size: int,
    device: torch.device,
    memory_budget_bytes: int,
    data_placement: Placement = "auto",
    num_workers: int | None = None,
    accelerator_side_preprocess: bool | None = None,
    eight_bit_transfer: bool = False,
    augmentation: AnyAugmentation | None = None,
    group: ReplicaGroup = ALONE,
) -> tuple[Feed, list[str]]:
    """Makes the training feed of one replica; also returns warnings about the choice.

    On a CPU, the replicas of a host share one copy of resident samples.
    """
    on_host = accelerator_side_preprocess is False and device.type != "cpu"
    must_stream = on_host or augments_at_decode(source)
    if data_placement == "resident":
        _require_one_decoding(source, tile=preprocess.spec.tile)
        _require_room(
            len(source) * preprocess.spec.image_bytes,
            on_host=on_host,
            memory_budget_bytes=memory_budget_bytes,
        )
    if num_workers is not None:
        check_num_workers(num_workers)
    if eight_bit_transfer:
        _require_eight_bits(preprocess, accelerator_side_preprocess=accelerator_side_preprocess)
    # All ranks must choose alike: loading resident data is a collective, so a rank that streams instead
    # would leave the others waiting.
    repeatable = all(group.gather(_is_repeatable(source)))
    fits = fits_on_device(source, preprocess=preprocess, memory_budget_bytes=memory_budget_bytes)
    if data_placement == "resident" or (data_placement == "auto" and fits and repeatable and not must_stream):
        resident = ResidentFeed(
            source,
            order=order,
            preprocess=preprocess,
            micro_batch_size=micro_batch_size,
            device=device,
            augmentation=augmentation,
            replica=group.rank,
            replicas=group.size,
            group=group,
        )
        warnings = _resident_warnings(num_workers, repeatable=repeatable)
        if device.type == "cpu":
            warnings += _idle_transfer(accelerator_side_preprocess, eight_bit_transfer=eight_bit_transfer)
        return resident, warnings
    stream = StreamFeed(
        source,
        order=order,
        preprocess=preprocess,
        micro_batch_size=micro_batch_size,
        device=device,
        num_workers=default_num_workers(group.local_size) if num_workers is None else num_workers,
        preprocess_on_device=bool(accelerator_side_preprocess) or eight_bit_transfer,
        eight_bit_transfer=eight_bit_transfer,
        augmentation=augmentation,
        replica=group.rank,
        replicas=group.size,
    )
    return stream, _stream_warnings(repeatable=repeatable)


def fits_on_device(source: Source, *, preprocess: Preparation, memory_budget_bytes: int) -> bool:
    """Whether a source is small enough to be resident on a device with this much free memory."""
    return len(source) * preprocess.spec.image_bytes * _RESIDENT_SHARE <= memory_budget_bytes


def _require_one_decoding(source: Source, *, tile: int | None) -> None:
    if augments_at_decode(source) and tile is not None:
        raise BadInputError(
            f"--data-placement resident decodes each image once, but training cuts new tiles in every epoch "
            f"(--tile-size {tile}); use --data-placement stream."
        )
    if augments_at_decode(source):
        raise BadInputError(
            "--data-placement resident decodes each image once, but training crops it differently in every "
            "epoch; use --data-placement stream, or --augment False without --random-resized-crop."
        )


def _require_room(image_bytes: int, *, on_host: bool, memory_budget_bytes: int) -> None:
    if on_host:
        raise BadInputError(
            "--accelerator-side-preprocess False cannot be combined with --data-placement resident, which "
            "preprocesses samples on the device; use --data-placement stream."
        )
    if image_bytes > memory_budget_bytes:
        raise BadInputError(
            f"--data-placement resident needs {image_bytes} bytes for the images, but the device has "
            f"{memory_budget_bytes} free; use --data-placement stream."
        )


def _require_eight_bits(preprocess: Preparation, *, accelerator_side_preprocess: bool | None) -> None:
    if accelerator_side_preprocess is False:
        raise BadInputError(
            "--eight-bit-transfer needs preprocessing on the device; use --accelerator-side-preprocess True."
        )
    if preprocess.spec.image_dtype != "uint8":
        raise BadInputError(
            f"--eight-bit-transfer needs 8-bit images, but these are {preprocess.spec.image_dtype}; "
            "use --eight-bit-transfer False."
        )


def _is_repeatable(source: Source) -> bool:
    """Whether the first samples are the same when fetched twice (no random transforms)."""
    indices = np.arange(min(_PROBED_SAMPLES, len(source)), dtype=np.int64)
    (images, labels), (images_again, labels_again) = source.fetch(indices), source.fetch(indices)
    return np.array_equal(images, images_again, equal_nan=True) and np.array_equal(labels, labels_again)


def _resident_warnings(num_workers: int | None, *, repeatable: bool) -> list[str]:
    warnings = []
    if num_workers:
        warnings.append(
            f"--num-workers {num_workers} has no effect: resident data need no loader workers; use "
            "--data-placement stream to load with workers."
        )
    if not repeatable:
        warnings.append(
            "The data set returns a different sample each time (random transforms), but --data-placement "
            "resident reads each sample only once; use --data-placement stream to read it in every epoch."
        )
    return warnings


def _idle_transfer(accelerator_side_preprocess: bool | None, *, eight_bit_transfer: bool) -> list[str]:
    """Warns about transfer options: resident data on a CPU are not transferred."""
    asked = {
        "--accelerator-side-preprocess True": accelerator_side_preprocess is True,
        "--eight-bit-transfer True": eight_bit_transfer,
    }
    return [
        f"{option} has no effect: resident data on a CPU are not transferred; --data-placement stream uses "
        "it."
        for option, is_asked in asked.items()
        if is_asked
    ]


def _stream_warnings(*, repeatable: bool) -> list[str]:
    if repeatable:
        return []
    return [
        "The data set returns a different sample each time (random transforms), so a resumed or repeated run "
        "will differ from this one; use transforms without randomness to make runs repeatable."
    ]
