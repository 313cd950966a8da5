"""The loss and the score of segmentation, against their definitions."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch

from drivetrain.core.errors import BadInputError
from drivetrain.tasks.segmentation import SegmentationTask
from drivetrain.tasks.task import Task
from tests.tasks.dense_cases import cross_entropy_by_hand, dice_by_hand, random_case

LossName = Literal["softmax", "sigmoid"]
KINDS = [(2, "softmax"), (2, "sigmoid"), (5, "softmax"), (5, "sigmoid")]


@pytest.mark.parametrize(("classes", "loss"), KINDS)
def test_losses_and_scores_equal_their_definitions(classes: int, loss: LossName) -> None:
    logits, labels = random_case(classes=classes)
    task = SegmentationTask(num_classes=classes, loss=loss, cross_entropy_weight=0.7, dice_weight=1.3)
    losses, scores = task.losses_and_scores(logits, labels)
    for index in range(3):
        values, truth = logits[index].numpy(), labels[index, ..., 0].numpy()
        dice = dice_by_hand(values, truth).mean()
        cross_entropy = cross_entropy_by_hand(values, truth, sigmoid=loss == "sigmoid").mean()
        assert abs(losses[index].item() - (0.7 * cross_entropy + 1.3 * (1 - dice))) < 1e-12
        assert abs(scores[index].item() - dice) < 1e-12
        assert abs(scores[index].item() - dice_by_hand(values, truth, squared=False).mean()) > 1e-3
        other = cross_entropy_by_hand(values, truth, sigmoid=loss != "sigmoid").mean()
        assert abs(cross_entropy - other) > 1e-3
    assert torch.equal(task.losses(logits, labels), losses)
    assert not scores.requires_grad


@pytest.mark.parametrize(("classes", "loss"), KINDS)
@pytest.mark.parametrize("weighted", ["class", "border", "both"])
def test_pixel_weights_are_normalised_within_their_sample(
    classes: int, loss: LossName, weighted: str
) -> None:
    logits, labels = random_case(classes=classes, codes=True)
    class_weights = np.linspace(0.5, 3, classes)
    border_weight = 0.0 if weighted == "class" else 10.0
    task = SegmentationTask(
        num_classes=classes,
        loss=loss,
        class_weights=None if weighted == "border" else torch.from_numpy(class_weights.astype(np.float32)),
        border_weight=border_weight,
    )
    losses = task.losses(logits, labels)
    for index in range(3):
        values, truth = logits[index].numpy(), labels[index, ..., 0].numpy()
        weights = np.ones(truth.shape) if weighted == "border" else class_weights.astype(np.float32)[truth]
        weights = weights + labels[index, ..., 1].numpy() / 255 * border_weight
        costs = cross_entropy_by_hand(values, truth, sigmoid=loss == "sigmoid")
        expected = (weights * costs).sum() / weights.sum() + 1 - dice_by_hand(values, truth).mean()
        assert abs(losses[index].item() - expected) < 1e-12
    plain = replace(task, class_weights=None, border_weight=0.0).losses(logits, labels)
    # The last sample of two classes has one of them only: all its pixels weigh the same again.
    assert (plain - losses)[:2].abs().min() > 1e-4


@pytest.mark.parametrize(("classes", "loss"), KINDS)
def test_any_cut_of_a_batch_adds_up(classes: int, loss: LossName) -> None:
    logits, labels = random_case(6, classes, codes=True)
    weights = torch.linspace(1, 2, classes)
    task = SegmentationTask(num_classes=classes, loss=loss, class_weights=weights, border_weight=5)
    whole = logits.clone().requires_grad_()
    task.losses(whole, labels).sum().backward()  # type: ignore[no-untyped-call]
    parts = logits.clone().requires_grad_()
    total = 0.0
    for rows in ([0], [1, 2, 3], [4, 5]):
        loss_of_part = task.losses(parts[rows], labels[rows]).sum()
        loss_of_part.backward()  # type: ignore[no-untyped-call]
        total += loss_of_part.item()
    assert whole.grad is not None
    assert parts.grad is not None
    assert torch.allclose(parts.grad, whole.grad, rtol=1e-12, atol=1e-15)
    assert abs(total - task.losses(logits, labels).sum().item()) < 1e-12


@pytest.mark.parametrize(("classes", "loss"), KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_gradients_are_those_of_finite_differences(classes: int, loss: LossName, weighted: bool) -> None:
    logits, labels = random_case(2, classes, size=(3, 2), codes=True)
    task = SegmentationTask(num_classes=classes, loss=loss, cross_entropy_weight=0.6, dice_weight=1.7)
    if weighted:
        task = replace(task, class_weights=torch.linspace(0, 2, classes), border_weight=3.0)
    scale = torch.tensor([1.0, -2.5], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: task.losses(x, labels) * scale, logits.requires_grad_())


@pytest.mark.parametrize(("classes", "loss"), KINDS)
def test_half_precision_logits_are_measured_in_float32(classes: int, loss: LossName) -> None:
    logits, labels = random_case(classes=classes)
    task = SegmentationTask(num_classes=classes, loss=loss)
    half = logits.bfloat16().requires_grad_()
    losses, scores = task.losses_and_scores(half, labels)
    assert losses.dtype == scores.dtype == torch.float32
    assert not scores.requires_grad
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert half.grad is not None
    assert half.grad.dtype == torch.bfloat16
    assert half.grad.is_contiguous(memory_format=torch.channels_last)
    wide = task.losses(half.detach().double(), labels)
    assert torch.allclose(losses.double(), wide, rtol=1e-6)
    assert torch.allclose(
        task.losses(logits.float(), labels).double(), task.losses(logits, labels), rtol=1e-6
    )


@pytest.mark.parametrize(("classes", "loss"), KINDS)
def test_sure_answers_stay_finite(classes: int, loss: LossName) -> None:
    _, labels = random_case(classes=classes)
    task = SegmentationTask(num_classes=classes, loss=loss)
    right = torch.nn.functional.one_hot(labels[..., 0].long(), classes).permute(0, 3, 1, 2)
    for factor in (200.0, -200.0):
        sure = (right * factor).float().requires_grad_()
        losses, scores = task.losses_and_scores(sure, labels)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        assert sure.grad is not None
        assert sure.grad.isfinite().all()
        assert losses.isfinite().all()
        assert (scores > 0.9999).all() if factor > 0 else (scores < 0.5).all()


def test_only_the_logits_are_kept_for_the_backward_pass() -> None:
    labels = torch.zeros(2, 50, 50, 1, dtype=torch.uint8)
    for classes in (2, 6):
        logits = torch.randn(2, classes, 50, 50, requires_grad=True)
        kept: list[int] = []

        def count(tensor: torch.Tensor, sizes: list[int] = kept) -> torch.Tensor:
            sizes.append(tensor.numel() * tensor.element_size())
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            SegmentationTask(num_classes=classes).losses(logits, labels)
        assert sum(kept) < logits.numel() * 4 + labels.numel() + 1000


def test_a_sample_of_no_weight_has_no_cross_entropy() -> None:
    logits, labels = random_case(2)
    labels[:] = 0
    task = SegmentationTask(num_classes=2, class_weights=torch.tensor([0.0, 1.0]))
    losses, scores = task.losses_and_scores(logits, labels)
    assert torch.allclose(losses, 1 - scores)


def test_probabilities_add_up_to_1() -> None:
    logits, _ = random_case(classes=4)
    probabilities = SegmentationTask(num_classes=4).probabilities(logits.bfloat16())
    assert probabilities.dtype == torch.float32
    assert torch.allclose(probabilities.sum(1), torch.ones(3, 7, 6))


@pytest.mark.parametrize(("classes", "loss"), [(2, "softmax"), (5, "sigmoid")])
def test_the_loss_is_one_graph(classes: int, loss: LossName) -> None:
    logits, labels = random_case(classes=classes)
    task: Task = SegmentationTask(num_classes=classes, loss=loss)
    found = []
    for run in (
        task.losses_and_scores,
        torch.compile(task.losses_and_scores, fullgraph=True, backend="aot_eager"),
    ):
        values = logits.clone().requires_grad_()
        losses, scores = run(values, labels)
        losses.sum().backward()  # type: ignore[no-untyped-call]
        assert values.grad is not None
        found.append((losses.detach(), scores, values.grad))
    for eager, compiled in zip(*found, strict=True):
        assert torch.allclose(eager, compiled, rtol=1e-12)


def test_an_output_of_another_shape_is_refused() -> None:
    task = SegmentationTask(num_classes=2)
    task.check_output(torch.Size([3, 2, 388, 388]), batch=3, num_classes=2, size=(388, 388))
    for shape in ((3, 2, 572, 572), (3, 4, 388, 388), (3, 2)):
        with pytest.raises(BadInputError, match=r"labels of 388 x 388 pixels needs \(3, 2, 388, 388\)"):
            task.check_output(torch.Size(shape), batch=3, num_classes=2, size=(388, 388))
