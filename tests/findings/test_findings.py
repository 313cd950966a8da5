"""Which findings are said together, and that a healthy training has none."""

from drivetrain.findings.findings import evaluation_findings, training_findings
from tests.findings.cases import a_recipe, a_record, labelled, masked

RIGHT = [0, 1, 2] * 40


def test_a_healthy_training_has_none() -> None:
    assert training_findings(a_record(), labelled(RIGHT, RIGHT)) == []
    assert training_findings(a_record(), None) == []
    assert evaluation_findings(a_recipe(), masked([[[80, 5], [5, 10]]] * 6)) == []


def test_a_network_that_learned_nothing_says_nothing_about_classes() -> None:
    always_one = labelled(RIGHT, [0] * len(RIGHT))
    flat = a_record(losses=(2.3, 2.3), train=0.33, validations=(0.33,))
    assert [finding[:30] for finding in training_findings(flat, always_one)] == [
        "The training loss did not fall"
    ]
    falling = a_record(train=0.4, validations=(0.33,))
    assert [finding[:17] for finding in training_findings(falling, always_one)] == ["Validation images"]


def test_the_copies_come_first_and_three_are_the_most() -> None:
    measured = labelled([0] * 300 + [1] * 20 + [2] * 40, [0] * 300 + [1] * 20 + [1] * 40)
    record = a_record(train=1.0, validations=(0.7,), duplicates=(1, ("a.png", "b.png")))
    found = training_findings(record, measured)
    assert [finding.partition(" ")[0] for finding in found] == ["1", "Training", "Class"]
    assert training_findings(record, measured, waits="Data loading was the bottleneck.") == found


def test_a_device_that_waits_is_said_last() -> None:
    assert training_findings(a_record(), labelled(RIGHT, RIGHT), waits="Waited.") == ["Waited."]


def test_a_short_training_on_masks_is_called_short() -> None:
    record = a_record(task="segmentation", train=0.5, validations=(0.45,), updates=8)
    found = training_findings(record, masked([[[80, 5], [8, 7]]] * 6))
    assert [finding.partition(";")[0] for finding in found] == ["8 updates are few (validation dice 0.45)"]
