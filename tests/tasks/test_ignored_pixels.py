"""Pixels of ignored classes count nowhere: not in the loss, not in its gradient, not in any metric."""

from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from drivetrain.core.errors import BadInputError
from drivetrain.data.source import IGNORED
from drivetrain.tasks.segmentation import SegmentationTask
from drivetrain.tasks.segmentation_evaluation import SegmentationEvaluation, foreground_dice
from drivetrain.tasks.segmentation_measure import SegmentationMeasure
from tests.program.harness import GivenFeed, always, make_program
from tests.tasks.dense_cases import cross_entropy_by_hand, dice_by_hand, random_case

LossName = Literal["softmax", "sigmoid"]
KINDS = [(2, "softmax"), (2, "sigmoid"), (5, "softmax"), (5, "sigmoid")]
SHIFT = 0.7


def holed_case(samples: int = 3, classes: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    """Logits, labels with border codes of which about a third is ignored, and which pixels count."""
    logits, labels = random_case(samples, classes, codes=True)
    generator = torch.Generator().manual_seed(5)
    counted = torch.rand(labels.shape[:3], generator=generator) > 1 / 3
    labels[..., 0][~counted] = IGNORED
    return logits, labels, counted


def task_of(classes: int, loss: LossName, *, weighted: bool = False) -> SegmentationTask:
    task = SegmentationTask(
        num_classes=classes, loss=loss, cross_entropy_weight=0.7, dice_weight=1.3, ignores=True
    )
    if not weighted:
        return task
    return replace(task, class_weights=torch.linspace(0.5, 3, classes), border_weight=10.0)


def test_worked_example() -> None:
    """Two pixels count: p(class 1) is 0.9 on a pixel of class 1, and 0.2 on one of class 0."""
    ones = torch.tensor([0.9, 0.2, 0.6], dtype=torch.float64)
    logits = torch.stack([torch.zeros(3, dtype=torch.float64), ones.logit()])[None, :, None]
    labels = torch.tensor([1, 0, IGNORED], dtype=torch.uint8).view(1, 1, 3, 1)
    task = SegmentationTask(num_classes=2, ignores=True)
    cross_entropy = -(np.log(0.9) + np.log(0.8)) / 2
    of_one = (2 * 0.9 + 1e-6) / (0.81 + 0.04 + 1 + 1e-6)
    of_zero = (2 * 0.8 + 1e-6) / (0.01 + 0.64 + 1 + 1e-6)
    expected = cross_entropy + 1 - (of_one + of_zero) / 2
    assert abs(task.losses(logits, labels).item() - expected) < 1e-12
    labels[0, 0, 2] = 1
    assert abs(task.losses(logits, labels).item() - expected) > 1e-2


@pytest.mark.parametrize(("classes", "loss"), KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_loss_is_that_of_the_other_pixels(classes: int, loss: LossName, weighted: bool) -> None:
    logits, labels, counted = holed_case(classes=classes)
    task = task_of(classes, loss, weighted=weighted)
    losses, scores = task.losses_and_scores(logits, labels)
    class_weights = np.ones(classes)
    if task.class_weights is not None:
        class_weights = task.class_weights.double().numpy()
    for index in range(3):
        here = counted[index].numpy()
        values = logits[index].numpy()[:, here][:, None]
        truth = labels[index, ..., 0].numpy()[here][None]
        weights = class_weights[truth]
        weights = weights + labels[index, ..., 1].numpy()[here][None] / 255 * task.border_weight
        costs = cross_entropy_by_hand(values, truth, sigmoid=loss == "sigmoid")
        dice = dice_by_hand(values, truth).mean()
        expected = 0.7 * (weights * costs).sum() / weights.sum() + 1.3 * (1 - dice)
        assert abs(losses[index].item() - expected) < 1e-12
        assert abs(scores[index].item() - dice) < 1e-12


@pytest.mark.parametrize(("classes", "loss"), KINDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_only_pixels_that_count_have_a_gradient(classes: int, loss: LossName, weighted: bool) -> None:
    logits, labels, counted = holed_case(2, classes)
    task = task_of(classes, loss, weighted=weighted)
    assert torch.autograd.gradcheck(lambda x: task.losses(x, labels), logits.requires_grad_())
    task.losses(logits, labels).sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    at_pixels = logits.grad.abs().sum(1)
    assert not at_pixels[~counted].any()
    assert at_pixels[counted].all()
    moved = logits.detach() + SHIFT * torch.randn(logits.shape, dtype=torch.float64) * ~counted[:, None]
    assert torch.equal(task.losses(moved, labels), task.losses(logits, labels))
    moved[:, 0][counted] += SHIFT
    assert not torch.isclose(task.losses(moved, labels), task.losses(logits, labels)).any()


@pytest.mark.parametrize(("classes", "loss"), KINDS)
def test_without_ignored_pixels_nothing_changes(classes: int, loss: LossName) -> None:
    logits, labels = random_case(classes=classes, codes=True)
    task = task_of(classes, loss, weighted=True)
    plain = replace(task, ignores=False)
    assert torch.allclose(task.losses(logits, labels), plain.losses(logits, labels), rtol=1e-14)


@pytest.mark.parametrize(("classes", "loss"), KINDS)
def test_a_sample_of_ignored_pixels_alone_has_no_loss(classes: int, loss: LossName) -> None:
    logits, labels, _ = holed_case(2, classes)
    labels[1, ..., 0] = IGNORED
    losses = task_of(classes, loss).losses(logits.requires_grad_(), labels)
    losses.sum().backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert losses[1] == 0 != losses[0]
    assert not logits.grad[1].any()
    assert logits.grad[0].any()


@pytest.mark.parametrize(("classes", "loss"), [(2, "softmax"), (5, "softmax")])
def test_the_loss_is_one_graph(classes: int, loss: LossName) -> None:
    logits, labels, _ = holed_case(classes=classes)
    task = task_of(classes, loss)
    compiled = torch.compile(task.losses_and_scores, fullgraph=True, backend="aot_eager")
    for eager, other in zip(task.losses_and_scores(logits, labels), compiled(logits, labels), strict=True):
        assert torch.allclose(eager, other, rtol=1e-12)


@pytest.mark.parametrize("classes", [2, 4])
def test_the_cut_into_micro_batches_does_not_change_an_update(classes: int) -> None:
    """Though the samples, and so the micro-batches, differ in how many pixels count."""
    _, labels, _ = holed_case(6, classes)
    labels[0, 1:, :, 0] = IGNORED
    torch.manual_seed(0)
    images = torch.randn(6, 3, *labels.shape[1:3], dtype=torch.float64)
    task = task_of(classes, "softmax", weighted=True)

    def after_update(micro: int, task: SegmentationTask = task) -> Tensor:
        torch.manual_seed(1)
        model = nn.Conv2d(3, classes, 1, dtype=torch.float64)
        feed = GivenFeed(images, labels, micro=micro)
        make_program(model, feed, task=task).execute(0, 1, goes_on=always)
        return model.weight.detach().flatten()

    whole = after_update(6)
    for micro in (1, 2, 3):
        assert torch.allclose(after_update(micro), whole, rtol=1e-12, atol=1e-14)
    other = replace(task, border_weight=0.0)
    assert not torch.allclose(after_update(6, other), whole, rtol=1e-4)


def measured(logits: Tensor, labels: Tensor, names: tuple[str, ...]) -> SegmentationEvaluation:
    task = SegmentationTask(num_classes=len(names), ignores=True)
    measure = SegmentationMeasure(task, class_names=names, wide_dtype=torch.float64)
    for index in range(len(logits)):
        measure.add(logits[index : index + 1], labels[index : index + 1])
    return measure.result()


def sure_logits(classes: list[list[int]], num_classes: int) -> Tensor:
    return 9.0 * torch.nn.functional.one_hot(torch.tensor(classes), num_classes).permute(0, 2, 1)[:, :, None]


def test_metrics_count_the_other_pixels() -> None:
    logits = sure_logits([[0, 1, 2, 2], [1, 1, 0, 2]], 3)
    labels = torch.tensor([[0, 1, IGNORED, 1], [1, IGNORED, 0, 2]], dtype=torch.uint8)[:, None, :, None]
    result = measured(logits, labels, ("road", "car", "tree"))
    assert result.confusion.tolist() == [[2, 0, 0], [0, 2, 1], [0, 0, 1]]
    assert result.pixel_accuracy == 5 / 6
    assert [row["pixels"] for row in result.per_class()] == [3, 1, 2]
    assert [row["iou"] for row in result.per_class()] == [2 / 3, 1 / 2, 1]
    assert result.iou == pytest.approx((1 + 2 / 3 + 1 / 2) / 3)
    assert result.hard_dice == pytest.approx((1 + 4 / 5 + 2 / 3) / 3)
    labels[labels == IGNORED] = 0
    assert measured(logits, labels, ("road", "car", "tree")).iou < result.iou


def test_an_image_without_a_pixel_that_counts_is_in_no_mean() -> None:
    logits, labels, _ = holed_case(3, 3)
    alone = measured(logits[:2], labels[:2], ("a", "b", "c"))
    labels[2, ..., 0] = IGNORED
    result = measured(logits, labels, ("a", "b", "c"))
    assert result.samples == 3
    assert {**result.as_metrics(), "validation_samples": 2} == alone.as_metrics()
    assert result.per_class() == alone.per_class()
    assert set(result.per_image()[2].values()) == {None}
    assert result.per_image()[:2] == alone.per_image()
    labels[..., 0] = IGNORED
    with pytest.raises(BadInputError, match="--ignore-class leaves no pixel of the 3 validation images"):
        measured(logits, labels, ("a", "b", "c"))


def test_the_dice_of_a_picture_leaves_them_out() -> None:
    truth = np.array([[1, 1, IGNORED, 0]], dtype=np.uint8)
    found = np.array([[1, 0, 1, 0]], dtype=np.uint8)
    assert foreground_dice(truth, found, class_names=("a", "b")) == pytest.approx(2 / 3)
