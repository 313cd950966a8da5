"""Trainings whose updates are captured in tests, on a CPU by a stand-in and on an accelerator."""

from typing import Any

__all__ = ["CASES", "CLASSIFICATION", "SEGMENTATION"]

SEGMENTATION: dict[str, Any] = {
    "dataset": "synthetic-em",
    "model": "unet_same",
    "model_width": 4,
    "image_size": 32,
    "dataset_size": 10,
    "micro_batch_size": 2,
    "augment": True,
}
_LARS = {"momentum": 0.9, "weight_decay": 1e-4, "eeta": 0.001, "epsilon": 1e-7}
CLASSIFICATION: dict[str, Any] = {"dataset": "digits", "limit_train_samples": 44, "micro_batch_size": 8}

CASES: dict[str, dict[str, Any]] = {
    "plain": CLASSIFICATION,
    "padded and averaged": {
        **CLASSIFICATION,
        "gradient_accumulation_count": 2,
        "remainder": "pad",
        "ema": 0.9,
    },
    "mixed": {
        **CLASSIFICATION,
        "mixup": 0.2,
        "optimizer": "adam",
        "lr_schedule": "cosine",
        "clip_norm": 1.0,
    },
    "streamed": {**CLASSIFICATION, "data_placement": "stream", "num_workers": 0, "remainder": "carry"},
    "16 bits": {
        **CLASSIFICATION,
        "precision": "16.16",
        "half_type": "float16",
        "stochastic_rounding": True,
        "loss_scaling": "dynamic",
    },
    "lars": {**CLASSIFICATION, "optimizer": "lars", "optimizer_params": _LARS, "stable_norm": True},
    "fine-tuned": {
        **CLASSIFICATION,
        "optimizer": "adamw",
        "weight_decay": 0.01,
        "clip_norm": 1.0,
        "backbone_rate": 0.1,
        "layer_decay": 0.5,
        "head_first_epochs": 1,
    },
    "masks": SEGMENTATION,
    "bent masks": {
        **SEGMENTATION,
        "rotate": 20.0,
        "elastic": 2.0,
        "gamma": 0.2,
        "noise": 0.05,
        "optimizer": "adam",
    },
    "streamed masks": {
        **SEGMENTATION,
        "data_placement": "stream",
        "num_workers": 0,
        "gradient_accumulation_count": 2,
    },
}
