"""Classes that are never predicted, and labels that look wrong."""

import numpy as np

from drivetrain.findings.labels import classes_without_predictions, doubtful_label, doubtful_mask
from tests.findings.cases import a_recipe, labelled, masked

GOOD, MISSED = [[80, 5], [5, 10]], [[85, 0], [15, 0]]


def test_a_small_class_that_is_never_predicted_asks_for_weights() -> None:
    labels = [0] * 50 + [1] * 50 + [2] * 10
    measured = labelled(labels, [0] * 50 + [1] * 60)
    assert classes_without_predictions(a_recipe(), measured) == (
        "Class never predicted: radio, and the largest class is 5 times as large; try --class-weights "
        "balanced."
    )
    weighted = classes_without_predictions(a_recipe(class_weights=("balanced",)), measured)
    assert weighted == ("Class never predicted: radio; more samples of it or a larger --num-epochs help.")


def test_several_classes_are_counted() -> None:
    names = ("a", "b", "c", "d", "e", "f")
    measured = labelled(list(range(6)) * 5, [0] * 30, names=names)
    assert classes_without_predictions(a_recipe(), measured) == (
        "Classes never predicted: b, c, d and 2 more; more samples of them or a larger --num-epochs help."
    )


def test_classes_that_are_predicted_absent_or_rare_need_no_word() -> None:
    assert classes_without_predictions(a_recipe(), labelled([0, 1] * 20, [0, 1] * 20)) is None
    assert classes_without_predictions(a_recipe(), labelled([0] * 40 + [2] * 2, [0] * 42)) is None


def test_of_masks_the_images_with_a_class_count() -> None:
    found = classes_without_predictions(a_recipe(), masked([MISSED] * 3))
    assert found == (
        "Class never predicted: cell, and the largest class is 6 times as large; try --class-weights "
        "balanced."
    )
    assert classes_without_predictions(a_recipe(), masked([MISSED] * 2)) is None
    assert classes_without_predictions(a_recipe(), masked([MISSED] * 5 + [GOOD])) is None


def _one_contradiction() -> tuple[list[int], list[int], list[float]]:
    labels, sure = [0, 1] * 200, np.linspace(0.5, 0.98, 400)
    classes = list(labels)
    classes[398] = 1
    sure[398] = 0.99
    return labels, classes, sure.tolist()


def test_the_surest_contradiction_is_named_with_its_file() -> None:
    assert doubtful_label(labelled(*_one_contradiction())) == (
        "A label may be wrong: photos/398.jpg is predicted as parachute with 99%, but labelled church; "
        "predictions/validation.png shows the surest mistakes."
    )
    on_train = doubtful_label(labelled(*_one_contradiction(), split="train"))
    assert on_train is not None
    assert on_train.endswith("but labelled church.")


def test_several_contradictions_are_counted() -> None:
    labels, classes, sure = _one_contradiction()
    classes[397], sure[397] = 0, 0.97
    found = doubtful_label(labelled(labels, classes, sure))
    assert found is not None
    assert found.startswith("2 labels may be wrong; the surest: photos/398.jpg is predicted")


def test_an_unsure_mistake_is_the_networks_own() -> None:
    labels, classes, sure = _one_contradiction()
    sure[398] = 0.7
    assert doubtful_label(labelled(labels, classes, sure)) is None


def test_a_network_that_is_never_sure_contradicts_nobody() -> None:
    labels, classes, sure = _one_contradiction()
    assert doubtful_label(labelled(labels, classes, [0.6 * value for value in sure])) is None


def test_a_network_that_is_often_wrong_and_sure_contradicts_nobody() -> None:
    labels, classes, sure = _one_contradiction()
    for place in range(300, 398, 4):
        classes[place] = 1 - labels[place]
    assert doubtful_label(labelled(labels, classes, sure)) is None


def test_samples_without_files_are_not_named() -> None:
    assert doubtful_label(labelled(*_one_contradiction(), has_files=False)) is None


def test_a_mask_far_below_the_usual_score_is_named() -> None:
    right, wrong = [[80, 0], [2, 18]], [[80, 10], [10, 0]]
    assert doubtful_mask(masked([right] * 6 + [wrong])) == (
        "A mask may be wrong: 6.png reaches a Dice of 0.00 where half of the images reach 0.95; "
        "predictions/validation.png shows it."
    )
    on_test = doubtful_mask(masked([right] * 6 + [wrong], split="test"))
    assert on_test is not None
    assert on_test.endswith("; --overlay draws it.")


def test_masks_of_a_poor_network_are_not_doubted() -> None:
    poor, wrong = [[80, 5], [10, 5]], [[80, 10], [10, 0]]
    assert doubtful_mask(masked([poor] * 6 + [wrong])) is None
    right = [[80, 0], [2, 18]]
    assert doubtful_mask(masked([right] * 7)) is None
    assert doubtful_mask(masked([right] * 3 + [wrong])) is None
