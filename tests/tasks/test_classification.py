import pytest
import torch
from torch.nn import functional as F

from drivetrain.core.errors import BadInputError
from drivetrain.tasks.classification import ClassificationTask


def _case() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(16, 8, generator=generator), torch.randint(0, 8, (16,), generator=generator)


def test_case_68_smoothing_0_is_plain_cross_entropy() -> None:
    logits, labels = _case()
    plain = F.cross_entropy(logits, labels, reduction="none")
    assert torch.equal(ClassificationTask(label_smoothing=0.0).losses(logits, labels), plain)
    assert not torch.equal(ClassificationTask(label_smoothing=0.1).losses(logits, labels), plain)


def test_smoothing_spreads_a_share_over_all_classes() -> None:
    logits, labels = _case()
    targets = F.one_hot(labels, 8) * 0.9 + 0.1 / 8
    expected = -(targets * logits.log_softmax(1)).sum(1)
    actual = ClassificationTask(label_smoothing=0.1).losses(logits, labels)
    assert torch.allclose(actual, expected, rtol=1e-5)


def test_half_precision_logits_are_measured_in_float32() -> None:
    logits, labels = _case()
    assert ClassificationTask().losses(logits.bfloat16(), labels).dtype == torch.float32


def test_correct_counts_the_most_likely_class() -> None:
    logits = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    assert ClassificationTask().correct(logits, torch.tensor([1, 1])).tolist() == [True, False]


def test_an_output_of_another_shape_is_refused() -> None:
    task = ClassificationTask()
    task.check_output(torch.Size([2, 10]), batch=2, num_classes=10, size=(1, 1))
    with pytest.raises(BadInputError, match="--num-classes"):
        task.check_output(torch.Size([2, 9]), batch=2, num_classes=10, size=(1, 1))
