"""Contents of pages as runs leave them: a classifier, a segmentation, a cross-validation, a comparison."""

from collections.abc import Sequence

import numpy as np

from drivetrain.report.contents import (
    ConfusionMatrix,
    Curve,
    Example,
    Folds,
    MaskExample,
    PageContents,
    RecipeValue,
    RunContents,
    Series,
    Table,
    TimelineRow,
    UpdatePicture,
)
from tests.report.page.made_pictures import cells, digit_like

VALIDATIONS = 12
DIGITS = [str(digit) for digit in range(10)]


def page_of(*runs: RunContents, title: str = "digits") -> PageContents:
    """A page of runs; several are compared."""
    page = PageContents(title=title, created="2026-11-19 21:40 UTC", version="0.1.0", runs=list(runs))
    if len(runs) > 1:
        names = [run["name"] for run in runs]
        page["comparison"] = {
            "settings": Table(
                title="Settings that differ",
                columns=["option", *names],
                rows=[
                    ["--learning-rate", *(f"{0.1 / 2**place:.4g}" for place in range(len(runs)))],
                    ["--model", *(["cifar_resnet8", "mnist_cnn"] * len(runs))[: len(runs)]],
                ],
            ),
            "results": Table(
                title="Results",
                columns=["run", "state", "updates", "accuracy", "loss", "images/s", "time"],
                rows=[
                    [name, "finished", 1320, 0.98 - place / 300, 0.05 + place / 90, 799.5 - place, "7.7 s"]
                    for place, name in enumerate(names)
                ],
            ),
        }
    return page


def classifier(*, name: str = "digits", seed: int = 0, updates: int = 300) -> RunContents:
    """A classifier with a confusion matrix and its worst samples."""
    run = _run(name, task="classification")
    run["headline"] = [
        ("best accuracy", "0.9833"),
        ("best update", "88"),
        ("validation loss", "0.0498"),
        ("images per second", "800"),
    ]
    run["curves"] = [
        _curve("loss", "Loss", unit="", seed=seed, updates=updates, falls=True),
        _curve("accuracy", "Accuracy", unit="", seed=seed, updates=updates, falls=False),
        _single("learning_rate", "Learning rate", unit="", updates=updates, top=0.1),
        _single("throughput", "Throughput", unit="images/s", updates=updates, top=800),
    ]
    run["confusion"] = confusion(DIGITS, seed=seed)
    run["worst"] = [
        _example(number, truth=DIGITS[number % 10], predicted=DIGITS[(number * 3 + 1) % 10])
        for number in range(10)
    ]
    return run


def segmentation(*, name: str = "cells", seed: int = 0) -> RunContents:
    """A segmentation with two replicas of two stages: masks, timelines and memory."""
    run = _run(name, task="segmentation")
    run["headline"] = [("soft Dice", "0.9103"), ("IoU of cell", "0.8109"), ("time to train", "3.2 s")]
    run["warnings"] = [
        "--replicas 2 makes the global batch 2 times as large: each weight update takes 16 samples instead "
        "of 8; --micro-batch-size 1 keeps it.",
        "9 updates are few (validation dice 0.71); try --num-epochs 67.",
    ]
    run["curves"] = [
        _curve("loss", "Loss", unit="", seed=seed, updates=400, falls=True),
        _curve("dice", "Soft Dice", unit="mean over classes", seed=seed, updates=400, falls=False),
    ]
    run["tables"] = [
        Table(
            title="Scores of each class",
            columns=["class", "soft Dice", "hard Dice", "IoU"],
            rows=[["cell", 0.9103, 0.8956, 0.8109], ["membrane", 0.5059, 0.2031, None]],
        )
    ]
    run["masks"] = [_masks(number) for number in range(4)]
    run["timeline"] = [_picture("predicted", stretch=1.0), _picture("measured", stretch=1.3)]
    run["memory"] = Table(
        title="Memory in MB",
        columns=["device", "parameters", "gradients", "optimiser states", "activations", "working", "peak"],
        rows=[
            ["device 0", 1.5, 1.5, 2.5, 5.5, 1.5, 10.5],
            ["device 1", 1.5, 1.5, 1.5, 3.5, 1.5, 7.5],
        ],
    )
    return run


def cross_validation(*, name: str = "isbi", folds: int = 5) -> RunContents:
    """A cross-validation with the spread of its metrics."""
    run = _run(name, task="segmentation")
    run["kind"] = "cross-validation"
    run["headline"] = [("mean soft Dice", "0.8918 ± 0.0041"), ("folds", str(folds))]
    generator = np.random.default_rng(3)
    scores = [
        [round(float(value), 4) for value in generator.normal((0.89, 0.81, 0.31), (0.004, 0.01, 0.02))]
        for _ in range(folds)
    ]
    metrics = ["soft Dice", "IoU", "loss"]
    run["folds"] = Folds(
        table=Table(
            title="Folds",
            columns=["fold", *metrics],
            rows=[[f"fold {number}", *values] for number, values in enumerate(scores)],
        ),
        spread=Table(
            title="Spread over the folds",
            columns=["metric", "mean", "standard deviation", "lowest", "highest"],
            rows=[
                [metric, *(round(float(found), 4) for found in (np.mean(of), np.std(of), min(of), max(of)))]
                for metric, of in zip(metrics, zip(*scores, strict=True), strict=True)
            ],
        ),
    )
    lines = [_line(f"fold {number}", seed=number, updates=300, falls=True, step=3) for number in range(folds)]
    run["curves"] = [Curve(id="loss", title="Validation loss", unit="", lower_is_better=True, series=lines)]
    return run


def compared(lengths: Sequence[int] = (300, 1000, 3000, 10_000)) -> PageContents:
    """Classifiers with curves of several lengths on one page."""
    runs = [
        classifier(name=f"run-{place}-of-{updates}", seed=place, updates=updates)
        for place, updates in enumerate(lengths)
    ]
    return page_of(*runs, title=f"{len(runs)} runs compared")


def confusion(classes: Sequence[str], *, seed: int = 0) -> ConfusionMatrix:
    """Mostly right, with two pictures behind each frequent mistake."""
    generator = np.random.default_rng(seed)
    counts = generator.poisson(0.25, (len(classes), len(classes)))
    counts += np.diag(generator.integers(28, 38, len(classes)))
    examples: dict[str, list[Example]] = {}
    for row, truth in enumerate(classes):
        for column, predicted in enumerate(classes):
            kept = min(2, int(counts[row, column]))
            if row != column and kept:
                numbers = range(row * 100 + column * 2, row * 100 + column * 2 + kept)
                examples[f"{row},{column}"] = [
                    _example(number, truth=truth, predicted=predicted) for number in numbers
                ]
    return ConfusionMatrix(classes=list(classes), counts=counts.tolist(), examples=examples)


def _run(name: str, *, task: str) -> RunContents:
    return RunContents(
        id=f"runs/{name}",
        name=name,
        kind="training",
        state="finished",
        task=task,
        headline=[],
        facts=[("model", "cifar_resnet8"), ("data", "digits"), ("updates", "1,320"), ("samples", "1,438")],
        command=f"drivetrain train --config {name} --learning-rate 0.1 --output-dir runs/{name}",
        curves=[],
        recipe=_recipe(),
        plan=[
            Table(
                title="Batch",
                columns=["micro-batch", "accumulation", "replicas", "global batch"],
                rows=[[2, 4, 2, 16]],
            ),
            Table(
                title="Stages",
                columns=["stage", "layers", "parameters", "FLOPs", "memory"],
                rows=[[0, 35, 109_640, 41_746_432, "7.3 MB"], [1, 20, 11_402, 30_539_776, "4.0 MB"]],
            ),
        ],
        tables=[],
        environment=[("device", "AMD EPYC, 2 threads"), ("torch", "2.11.0"), ("Python", "3.11.2")],
        warnings=[],
        time=[("step", 5.312), ("start-up", 3.959), ("validation", 2.054), ("checkpoint", 0.306)],
    )


def _recipe() -> list[RecipeValue]:
    values: list[RecipeValue] = [
        {"group": "model", "option": "--model", "value": "cifar_resnet8", "origin": "recipe digits"},
        {
            "group": "training",
            "option": "--learning-rate",
            "value": "0.1",
            "origin": "chosen",
            "reason": "3 epochs of a short range test ended at 0.3; a third of it is safe.",
        },
        {"group": "training", "option": "--num-epochs", "value": "3", "origin": "command line"},
        {"group": "training", "option": "--momentum", "value": "0.9", "origin": "default"},
        {"group": "layout", "option": "--replicas", "value": "1", "origin": "default"},
    ]
    numbers = range(40)
    return values + [
        {"group": "other", "option": f"--other-{number}", "value": "off", "origin": "default"}
        for number in numbers
    ]


def _line(name: str, *, seed: int, updates: int, falls: bool, step: int = 1) -> Series:
    generator = np.random.default_rng([seed, step, falls])
    x = np.arange(step, updates + 1, step)
    decay = np.exp(-4 * x / updates) * (1 + 0.2 * seed) + 0.05 * generator.random(len(x)) + 0.02
    y = decay * (2.0 if falls else 0.9)
    return Series(name=name, x=x.tolist(), y=np.round(y if falls else 1 - y / 2, 5).tolist())


def _curve(name: str, title: str, *, unit: str, seed: int, updates: int, falls: bool) -> Curve:
    lines = [
        _line("training", seed=seed, updates=updates, falls=falls),
        _line("validation", seed=seed, updates=updates, falls=falls, step=updates // VALIDATIONS),
    ]
    return Curve(id=name, title=title, unit=unit, lower_is_better=falls, series=lines)


def _single(name: str, title: str, *, unit: str, updates: int, top: float) -> Curve:
    x = np.arange(1, updates + 1)
    y = np.round(top * (0.5 + 0.5 * np.cos(np.pi * x / updates * 0.9)), 6)
    line = Series(name=title.lower(), x=x.tolist(), y=y.tolist())
    return Curve(id=name, title=title, unit=unit, lower_is_better=None, series=[line])


def _example(number: int, *, truth: str, predicted: str) -> Example:
    return Example(
        name=f"sample {number}", image=digit_like(number), truth=truth, predicted=predicted, loss=3.2
    )


def _masks(number: int) -> MaskExample:
    image, truth, predicted = cells(number)
    scores = {"Dice": 0.89 - 0.03 * number, "IoU": 0.8 - 0.04 * number}
    return MaskExample(
        name=f"image-{number}.png", image=image, truth=truth, predicted=predicted, scores=scores
    )


def _picture(source: str, *, stretch: float) -> UpdatePicture:
    """1F1B on two stages of two replicas."""
    orders = {
        0: [("forward", 0), ("forward", 1), ("backward", 0), ("forward", 2), ("backward", 1)],
        1: [("wait", 0), ("forward", 0), ("backward", 0), ("forward", 1), ("backward", 1), ("forward", 2)],
    }
    rows = []
    is_predicted = source == "predicted"
    device = "device {1}" if is_predicted else "replica {0}, device {1}"
    for replica in range(1 if is_predicted else 2):
        for stage, order in orders.items():
            row = TimelineRow(device=device.format(replica, stage), actions=[])
            now = 0.0
            for kind, part in [*order, ("gradient sum", 0), ("optimiser update", 0)]:
                duration = {"forward": 4200.0, "backward": 8100.0, "wait": 4600.0}.get(kind, 900.0) * stretch
                label = f"{kind[0].upper()}{part}" if kind in ("forward", "backward") else ""
                row["actions"].append((kind, label, round(now, 1), round(duration, 1)))
                now += duration + 150
            rows.append(row)
    return UpdatePicture(
        title="One update under 1F1B",
        source="predicted" if is_predicted else "measured",
        rows=rows,
        facts=[("idle", "26%" if is_predicted else "46%"), ("passes", "60 ms" if is_predicted else "84 ms")],
    )
