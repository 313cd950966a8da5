"""Measuring a segmentation over a set of images."""

from itertools import pairwise
from math import isclose

import numpy as np
import pytest
import torch
from torch import Tensor

from drivetrain.tasks.region_metrics import region_scores
from drivetrain.tasks.segmentation import SegmentationTask
from drivetrain.tasks.segmentation_measure import SegmentationEvaluation, SegmentationMeasure
from drivetrain.tasks.task import Evaluation
from tests.tasks.dense_cases import cross_entropy_by_hand, dice_by_hand, random_case

NAMES = ("membrane", "cell")


def measured(
    batches: list[tuple[Tensor, Tensor]], *, names: tuple[str, ...] = NAMES, regions: bool = False
) -> SegmentationEvaluation:
    task = SegmentationTask(num_classes=len(names))
    measure = SegmentationMeasure(task, class_names=names, wide_dtype=torch.float64, regions=regions)
    for logits, labels in batches:
        measure.add(logits, labels)
    return measure.result()


def sure_logits(classes: list[list[int]], num_classes: int = 2) -> Tensor:
    """Logits that say these classes, one image."""
    return 9.0 * torch.nn.functional.one_hot(torch.tensor(classes), num_classes).permute(2, 0, 1)[None]


def as_labels(classes: list[list[int]]) -> Tensor:
    return torch.tensor(classes, dtype=torch.uint8)[None, ..., None]


def test_means_equal_their_definitions() -> None:
    names = ("a", "b", "c")
    logits, labels = random_case(5, 3)
    result: Evaluation = measured([(logits.float(), labels)], names=names)
    assert isinstance(result, SegmentationEvaluation)
    dice, losses = [], []
    for values, label in zip(logits.float().double().numpy(), labels[..., 0].numpy(), strict=True):
        dice.append(dice_by_hand(values, label))
        costs = cross_entropy_by_hand(values, label, sigmoid=False)
        losses.append(costs.mean() + 1 - dice[-1].mean())
    assert isclose(result.dice, np.mean(dice), rel_tol=1e-12)
    assert isclose(result.loss, np.mean(losses), rel_tol=1e-12)
    assert (result.as_metrics()["dice"], result.samples) == (result.dice, 5)
    by_class = dict(zip(names, np.mean(dice, axis=0).tolist(), strict=True))
    assert [row["class"] for row in result.per_class()] == ["b", "c", "a"]
    for row in result.per_class():
        assert row["dice"] == pytest.approx(by_class[str(row["class"])], rel=1e-12)
    for name, value in by_class.items():
        assert result.as_metrics()[f"soft_dice_{name}"] == pytest.approx(value, rel=1e-12)
    foreground = (by_class["b"] + by_class["c"]) / 2
    assert result.as_metrics()["foreground_soft_dice"] == pytest.approx(foreground, rel=1e-12)
    found = logits.float().argmax(1).numpy()
    assert isclose(result.pixel_accuracy, (found == labels[..., 0].numpy()).mean())


def test_hard_scores_count_all_pixels_together() -> None:
    first = (sure_logits([[0, 0, 1, 1]]), as_labels([[0, 1, 1, 1]]))
    second = (sure_logits([[1, 1], [1, 0]]), as_labels([[1, 1], [1, 1]]))
    result = measured([first, second])
    assert result.confusion.tolist() == [[1, 0], [2, 5]]
    membrane, cell = 2 * 1 / (1 + 3), 2 * 5 / (7 + 5)
    assert result.hard_dice == pytest.approx((membrane + cell) / 2)
    assert result.iou == pytest.approx((1 / 3 + 5 / 7) / 2)
    assert result.pixel_accuracy == 6 / 8
    rows = result.per_class()
    assert [row["class"] for row in rows] == ["cell", "membrane"]
    assert [row["pixels"] for row in rows] == [7, 1]
    assert [row["iou"] for row in rows] == [5 / 7, 1 / 3]
    metrics = result.as_metrics()
    assert (metrics["iou_cell"], metrics["iou_membrane"], metrics["foreground_iou"]) == (5 / 7, 1 / 3, 5 / 7)
    assert (metrics["hard_dice_cell"], metrics["foreground_hard_dice"]) == (cell, cell)
    assert list(metrics).index("iou_cell") < list(metrics).index("iou_membrane")
    # Not the mean of what each image has.
    assert result.iou != pytest.approx(np.mean([row["iou"] or 0 for row in result.per_image()]))


def test_classes_that_occur_nowhere_are_left_out_and_false_ones_count() -> None:
    names = ("a", "b", "c")
    right = measured([(sure_logits([[0, 1]], 3), as_labels([[0, 1]]))], names=names)
    assert right.iou == right.hard_dice == 1
    assert right.per_class()[1]["iou"] is None
    assert "iou_c" not in right.as_metrics()
    assert right.as_metrics()["foreground_iou"] == 1
    assert right.per_image()[0]["iou_c"] is None
    wrong = measured([(sure_logits([[0, 2]], 3), as_labels([[0, 0]]))], names=names)
    assert wrong.iou == pytest.approx((1 / 2 + 0) / 2)


@pytest.mark.parametrize("classes", [2, 4])
def test_batches_do_not_matter(classes: int) -> None:
    names = tuple("abcd"[:classes])
    logits, labels = random_case(7, classes, size=(33, 41))
    whole = measured([(logits, labels)], names=names, regions=True)
    for sizes in ([1] * 7, [3, 3, 1], [2, 5]):
        edges = np.cumsum([0, *sizes]).tolist()
        parts = [(logits[a:b], labels[a:b]) for a, b in pairwise(edges)]
        result = measured(parts, names=names, regions=True)
        assert np.array_equal(result.confusions, whole.confusions)
        for name, value in result.as_metrics().items():
            assert isclose(value, whole.as_metrics()[name], rel_tol=1e-12), name
    backwards = measured([(logits.flip(0), labels.flip(0))], names=names, regions=True)
    assert isclose(backwards.dice, whole.dice, rel_tol=1e-12)
    assert backwards.per_image()[0]["loss"] != whole.per_image()[0]["loss"]


def test_images_may_differ_in_size() -> None:
    cases = [random_case(1, 2, size=size) for size in ((5, 9), (30, 4), (12, 12))]
    result = measured(cases)
    assert result.samples == 3
    alone = [measured([case]) for case in cases]
    assert isclose(result.dice, np.mean([one.dice for one in alone]), rel_tol=1e-12)
    assert result.confusion.sum() == 5 * 9 + 30 * 4 + 12 * 12
    for row, one in zip(result.per_image(), alone, strict=True):
        assert row["soft_dice"] == pytest.approx(one.dice)
        assert row["hard_dice"] == pytest.approx(one.hard_dice)


def test_border_codes_do_not_change_what_is_measured() -> None:
    logits, labels = random_case(2, codes=True)
    assert measured([(logits, labels)]).as_metrics() == measured([(logits, labels[..., :1])]).as_metrics()


def test_regions_are_scored_on_request() -> None:
    logits, labels = random_case(3, 2, size=(24, 24))
    plain, scored = measured([(logits, labels)]), measured([(logits, labels)], regions=True)
    assert "v_rand" not in plain.as_metrics()
    assert plain.v_rand is None
    pairs = zip(logits.argmax(1).to(torch.uint8).numpy(), labels[..., 0].numpy(), strict=True)
    expected = [region_scores(found, truth) for found, truth in pairs]
    known = [scores.v_rand for scores in expected if scores.v_rand is not None]
    # The last image shows no cell, so it has no score.
    assert len(known) == 2
    assert scored.v_rand == pytest.approx(np.mean(known))
    assert [row["v_info"] for row in scored.per_image()] == [scores.v_info for scores in expected]


def test_the_membrane_is_the_background_wherever_it_stands() -> None:
    logits, labels = random_case(2, 2, size=(24, 24))
    labels[-1] = labels[0]
    usual = measured([(logits, labels)], regions=True)
    swapped = measured([(logits.flip(1), 1 - labels)], names=NAMES[::-1], regions=True)
    assert usual.v_rand == swapped.v_rand
    assert usual.v_rand != measured([(logits.flip(1), 1 - labels)], regions=True).v_rand


def test_the_numbers_of_a_validation_event() -> None:
    logits, labels = random_case(3, 2)
    metrics = measured([(logits, labels)], regions=True).as_metrics()
    names = ["loss", "dice", "hard_dice", "iou", "pixel_accuracy", "v_rand", "v_info"]
    scores = ("soft_dice", "hard_dice", "iou")
    by_class = [f"{score}_{name}" for score in scores for name in ("cell", "membrane")]
    foreground = [f"foreground_{score}" for score in scores]
    assert list(metrics) == [*names, *foreground, *by_class, "validation_samples"]
    assert metrics["validation_samples"] == 3
    row = measured([(logits, labels)], regions=True).per_image()[0]
    assert list(row)[:7] == ["loss", "soft_dice", *names[2:]]
    assert list(row)[7:] == [*foreground, *by_class]
