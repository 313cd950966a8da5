"""Options of a recipe that a benchmark takes and has no use for, so that it can say so."""

from collections.abc import Mapping
from typing import Literal

from drivetrain.recipe.schema import Recipe, field_note

__all__ = ["IDLE_IN_DELIVERY", "IDLE_IN_INFERENCE", "IDLE_IN_TRAINING", "DataKind"]

DataKind = Literal["real", "host", "device"]

_OF_VALIDATION = frozenset(
    {"flip_averaging", "limit_validation_samples", "validation_micro_batch_size", "validation_replicas"}
)
_IN_ANY_TRAINING = _OF_VALIDATION | {"init_from", "profile"}
# Noise has no files, no folds, no bad samples, and as many samples as an update takes.
_IN_NOISE = frozenset(
    {
        "data_dir",
        "data_placement",
        "dataset_size",
        "fold",
        "fold_scheme",
        "folds",
        "limit_train_samples",
        "on_bad_sample",
        "remainder",
        "validation_fraction",
        "weight_updates_per_epoch",
        "white_level",
    }
)
# Batches that lie on the device ready for the model are shown as they are.
_IN_READY_BATCHES = frozenset(
    {
        "accelerator_side_preprocess",
        "augment",
        "eight_bit_transfer",
        "elastic",
        "gamma",
        "mixup",
        "noise",
        "num_workers",
        "rand_augment",
        "rand_augment_magnitude",
        "random_resized_crop",
        "rotate",
        "shuffle",
    }
)

IDLE_IN_TRAINING: Mapping[DataKind, frozenset[str]] = {
    "real": _IN_ANY_TRAINING,
    "host": _IN_ANY_TRAINING | _IN_NOISE,
    "device": _IN_ANY_TRAINING | _IN_NOISE | _IN_READY_BATCHES,
}

_USED_IN_INFERENCE = frozenset(
    {
        "channels",
        "compile",
        "dataset",
        "half_partials",
        "half_type",
        "image_size",
        "model",
        "model_edit",
        "model_params",
        "model_width",
        "num_classes",
        "precision",
        "tile_size",
    }
)
_USED_IN_DELIVERY = frozenset(
    {"border_sigma", "border_weight", "model", "model_params", "model_width", "num_classes"}
)
_OF_MODELS = frozenset({"model", "pipeline", "optimisation"})


def _fields_of(groups: frozenset[str]) -> frozenset[str]:
    return frozenset(field for field in Recipe.model_fields if field_note(field).group in groups)


IDLE_IN_INFERENCE = _fields_of(_OF_MODELS | {"data", "batch"}) - _USED_IN_INFERENCE
IDLE_IN_DELIVERY = (
    _fields_of(_OF_MODELS) | _OF_VALIDATION | {"dbn_replica_group_size", "max_cross_replica_buffer_size"}
) - _USED_IN_DELIVERY
