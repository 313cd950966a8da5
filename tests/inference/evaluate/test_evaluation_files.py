"""What an evaluation leaves in a run directory beside its numbers."""

import csv
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.tasks.dense_cases import random_case

from drivetrain.data.masks.masked_images import HeldMaskedImages
from drivetrain.data.source import ArraySource, SubsetSource
from drivetrain.data.training_tiles import UniformSource
from drivetrain.inference.evaluate.evaluation_files import write_evaluation
from drivetrain.store.directory import RunDirectory
from drivetrain.tasks.classification_measure import ClassificationEvaluation
from drivetrain.tasks.region_metrics import RegionScores
from drivetrain.tasks.segmentation import SegmentationTask
from drivetrain.tasks.segmentation_measure import SegmentationEvaluation, SegmentationMeasure

NAMES = ("membrane", "cell")


def _source(*names: str) -> UniformSource:
    zeros = np.zeros((len(names), 7, 6, 1), np.uint8)
    return UniformSource(HeldMaskedImages(images=zeros, masks=zeros, names=names))


def _evaluation(*, regions: bool = False) -> SegmentationEvaluation:
    logits, labels = random_case(3)
    measure = SegmentationMeasure(
        SegmentationTask(num_classes=2), class_names=NAMES, wide_dtype=torch.float64, regions=regions
    )
    measure.add(logits, labels)
    return measure.result()


def _rows(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_row_per_image_with_its_name(tmp_path: Path) -> None:
    found = _evaluation()
    source = SubsetSource(_source("x", "a, b.png", "y", "z"), np.array([3, 1, 0]))
    write_evaluation(RunDirectory(tmp_path), found, source=source, names=NAMES)
    assert [path.name for path in tmp_path.iterdir()] == ["images.csv"]
    rows = _rows(tmp_path / "images.csv")
    assert [row["image"] for row in rows] == ["z", "a, b.png", "x"]
    for row, expected in zip(rows, found.per_image(), strict=True):
        assert set(row) == {"image", *expected}
        for name, value in expected.items():
            assert value is not None
            assert float(row[name]) == pytest.approx(value, abs=5e-7)
    assert np.mean([float(row["soft_dice"]) for row in rows]) == pytest.approx(found.dice, abs=1e-6)


def test_what_an_image_does_not_have_stays_empty(tmp_path: Path) -> None:
    """No pixel of the only class that the last image has; no object in the first."""
    found = SegmentationEvaluation(
        class_names=NAMES,
        losses=np.array([0.5]),
        class_dice=np.array([[0.5, 0.25]]),
        confusions=np.array([[[42, 0], [0, 0]]]),
        regions=(RegionScores(v_rand=None, v_info=None),),
    )
    write_evaluation(RunDirectory(tmp_path), found, source=_source("x"), names=NAMES)
    (row,) = _rows(tmp_path / "images.csv")
    assert (row["iou_cell"], row["v_rand"], row["iou_membrane"]) == ("", "", "1.0")


def test_another_split_has_its_own_file(tmp_path: Path) -> None:
    source = _source("a", "b", "c")
    write_evaluation(RunDirectory(tmp_path), _evaluation(), source=source, names=NAMES, split="test")
    assert [path.name for path in tmp_path.iterdir()] == ["images-test.csv"]


def test_a_classification_leaves_its_confusion(tmp_path: Path) -> None:
    found = ClassificationEvaluation(loss=0.1, top5_accuracy=None, confusion=np.array([[2, 1], [0, 3]]))
    source = ArraySource(images=np.zeros((6, 4, 4, 1), np.uint8), labels=np.zeros(6, np.int64))
    write_evaluation(RunDirectory(tmp_path), found, source=source, names=("a", "b"), split="test")
    assert {path.name for path in tmp_path.iterdir()} == {"confusion-test.csv", "confusion-test.png"}
