"""Measuring a classifier: every sample counts once, whatever the batches."""

import numpy as np
import pytest
import torch
from torch import Tensor

from drivetrain.tasks.classification import ClassificationTask
from drivetrain.tasks.classification_measure import ClassificationEvaluation, ClassificationMeasure


def _measured(
    logits: Tensor, labels: Tensor, *, batch: int, num_classes: int = 8
) -> ClassificationEvaluation:
    return _measure(logits, labels, batch=batch, num_classes=num_classes).result()


def _measure(logits: Tensor, labels: Tensor, *, batch: int, num_classes: int = 8) -> ClassificationMeasure:
    measure = ClassificationMeasure(ClassificationTask(), num_classes=num_classes, wide_dtype=torch.float64)
    for first in range(0, len(labels), batch):
        part = slice(first, first + batch)
        measure.add(logits[part], labels[part])
    return measure


def _case(num_classes: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(50, num_classes, generator=generator)
    return logits, torch.randint(0, num_classes, (50,), generator=generator)


@pytest.mark.parametrize("batch", [1, 7, 50])
def test_counts_are_those_of_a_plain_loop(batch: int) -> None:
    logits, labels = _case()
    found = _measured(logits, labels, batch=batch)
    order = logits.argsort(1, descending=True)
    confusion = np.zeros((8, 8), dtype=int)
    for truth, guess in zip(labels.tolist(), order[:, 0].tolist(), strict=True):
        confusion[truth, guess] += 1
    assert np.array_equal(found.confusion, confusion)
    assert found.samples == 50
    assert found.accuracy == np.trace(confusion) / 50
    in_top = [truth in best for truth, best in zip(labels.tolist(), order[:, :5].tolist(), strict=True)]
    assert found.top5_accuracy == np.mean(in_top)
    chosen = logits.double().log_softmax(1)[torch.arange(50), labels]
    assert found.loss == pytest.approx(-float(chosen.mean()), rel=1e-6)


def test_the_batches_change_no_count_and_hardly_the_loss() -> None:
    logits, labels = _case()
    one, other = (_measured(logits, labels, batch=batch) for batch in (3, 50))
    assert np.array_equal(one.confusion, other.confusion)
    assert one.loss == pytest.approx(other.loss, rel=1e-7)


def test_few_classes_have_no_top_five() -> None:
    logits, labels = _case(4)
    found = _measured(logits, labels, batch=10, num_classes=4)
    assert found.top5_accuracy is None
    assert set(found.as_metrics()) == {"loss", "accuracy", "validation_samples"}


def test_a_class_without_samples_has_no_accuracy() -> None:
    logits = torch.eye(3)[[0, 1, 1]]
    found = _measured(logits, torch.tensor([0, 0, 1]), batch=3, num_classes=3)
    assert found.class_accuracies == [0.5, 1.0, None]
    assert found.accuracy == pytest.approx(2 / 3)


def test_every_sample_is_kept_in_its_order_whatever_the_batches_and_processes() -> None:
    logits, labels = _case()
    whole = _measured(logits, labels, batch=50).guesses
    assert whole is not None
    shares = logits.softmax(1)
    assert np.array_equal(whole.labels, labels)
    assert np.array_equal(whole.classes, logits.argmax(1))
    assert whole.confidences == pytest.approx(shares.max(1).values.numpy())
    parts = [_measure(logits[part], labels[part], batch=7) for part in (slice(0, 20), slice(20, 50))]
    together = _measure(logits[:1], labels[:1], batch=1)
    together.take([parts[0].state(), None, parts[1].state()])
    found = together.result().guesses
    assert found is not None
    assert np.array_equal(found.labels, whole.labels)
    assert np.array_equal(found.confidences, whole.confidences)
