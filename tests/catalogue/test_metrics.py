"""The names of metrics: what data have, what people read, and which way is better."""

import pytest

from drivetrain.catalogue.metrics import (
    MAIN_METRICS,
    brief_metric,
    class_scores,
    could_be_metric,
    direction,
    foreground_first,
    higher_is_better,
    is_of_classes,
    logged_name,
    metrics_in_words,
    metrics_of,
    plain_metric,
    shown_metric,
)


def test_the_background_comes_last() -> None:
    assert foreground_first(("background", "cell", "wall")) == [1, 2, 0]
    assert foreground_first(("cell", "membrane")) == [0, 1]
    assert foreground_first(("membrane", "cell")) == [1, 0]


@pytest.mark.parametrize(
    ("metric", "words", "brief"),
    [
        ("dice", "soft Dice (mean over classes)", "soft Dice (class mean)"),
        ("hard_dice", "hard Dice (mean over classes)", "hard Dice (class mean)"),
        ("foreground_iou", "IoU (mean over foreground classes)", "IoU (foreground mean)"),
        ("soft_dice_cell wall", "soft Dice of cell wall", "soft Dice of cell wall"),
        ("iou_dice", "IoU of dice", "IoU of dice"),
        ("accuracy", "accuracy", "accuracy"),
        ("pixel_accuracy", "pixel accuracy", "pixel accuracy"),
    ],
)
def test_people_read_which_dice_and_which_mean(metric: str, words: str, brief: str) -> None:
    assert (shown_metric(metric), brief_metric(metric)) == (words, brief)


def test_only_of_the_loss_less_is_better() -> None:
    assert (higher_is_better("loss"), direction("loss")) == (False, "lower is better")
    assert all(higher_is_better(name) for name in ("accuracy", "dice", "iou_loss", "foreground_iou"))


def test_other_programs_get_names_that_say_all() -> None:
    assert logged_name("dice") == "soft_dice_mean_over_classes"
    assert logged_name("iou") == "iou_mean_over_classes"
    assert [logged_name(name) for name in ("loss", "iou_cell")] == ["loss", "iou_cell"]


def test_the_metrics_of_data_are_those_of_their_classes() -> None:
    assert metrics_of("classification", ("a",) * 5) == ["accuracy", "loss"]
    assert metrics_of("classification", ("a",) * 6) == ["accuracy", "top5_accuracy", "loss"]
    names = metrics_of("segmentation", ("back", "cell"))
    assert {"dice", "hard_dice", "iou", "foreground_iou", "iou_cell", "soft_dice_back", "loss"} <= set(names)
    assert "iou_other" not in names
    assert "v_rand" not in names
    assert "(CLASS: cell, back)" in metrics_in_words("segmentation", ("back", "cell"))
    assert all(MAIN_METRICS[task] in metrics_of(task, ("a", "b")) for task in MAIN_METRICS)


def test_before_the_data_are_there_a_class_may_be_any() -> None:
    assert could_be_metric("iou_anything", tasks=("segmentation",))
    assert not could_be_metric("iou_anything", tasks=("classification",))
    assert not could_be_metric("accuracy", tasks=("segmentation",))
    assert plain_metric(" soft_dice ") == "dice"
    assert plain_metric("soft_dice_a") == "soft_dice_a"


def test_scores_of_a_validation_are_read_back_in_their_order() -> None:
    event = {"loss": 1.0, "dice": 0.5, "iou": 0.25, "soft_dice_b": 0.75, "soft_dice_a": 0.25, "iou_b": 0.5}
    found = class_scores({**event, "foreground_soft_dice": 0.75, "validation_samples": 3})
    assert list(found) == ["soft Dice", "IoU"]
    assert list(found["soft Dice"].by_class.items()) == [("b", 0.75), ("a", 0.25)]
    assert (found["soft Dice"].foreground, found["soft Dice"].mean) == (0.75, 0.5)
    assert found["IoU"].by_class == {"b": 0.5}
    assert class_scores({"loss": 1.0, "accuracy": 0.5}) == {}


def test_scores_of_classes_are_told_from_means_over_all() -> None:
    assert [name for name in ("dice", "iou", "iou_a", "foreground_iou", "loss") if is_of_classes(name)] == [
        "iou_a",
        "foreground_iou",
    ]
