"""Keras models in every layout, compared by `certify` on ranks of their own."""

from typing import Any

import numpy as np

import drivetrain
from tests.keras_models import CLASSES, SIDE, images_of, little_cnn, real_keras

SAMPLES, BATCH = 16, 8


def test_layouts_compute_the_same() -> None:
    model: Any = little_cnn(real_keras(), dropout=0.3)
    certificate = drivetrain.certify(
        model=model,
        data=(images_of((SIDE, SIDE, 3), samples=SAMPLES), np.arange(SAMPLES) % CLASSES),
        global_batch_size=BATCH,
        micro_batch_size=BATCH // 2,
        learning_rate=0.01,
        quick=True,
    )
    assert certificate["ok"]
    assert len(certificate["layouts"]) > 3
