"""The last weights of one fold, measured in more ways than a training does.

Averaged and plain weights, flips never averaged; on the validation images as they are, and on images that
the training's own chances have changed: that is how the published 0.8902 of `isbi_unet_medical` was
measured, whose evaluation ran the training's preparation (NVIDIA DeepLearningExamples, UNet_Medical,
utils/data_loader.py as of the publication in June 2020; mended upstream later, the figure stayed).
"""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

from drivetrain.assembly.training_feed import augmentation_of
from drivetrain.console.reporter import Reporter
from drivetrain.data.feeds.feed import MicroBatch
from drivetrain.data.feeds.resident import ResidentFeed
from drivetrain.data.order import SampleOrder
from drivetrain.data.source import DataSplits, Source
from drivetrain.data.splits import open_data
from drivetrain.devices.backend_settings import training_backends
from drivetrain.inference.model.evaluator import build_evaluator, evaluate_model
from drivetrain.inference.model.restore import TrainedRun, find_checkpoint, open_trained_run
from drivetrain.passes.forward import choose_precision, in_precision
from drivetrain.tasks.from_recipe import build_measure

# The published evaluation saw every image once; more draws say the same with less chance.
DRAWS_PER_IMAGE = 20
NAMES = ("dice", "hard_dice", "v_rand", "v_info")


def measure_last_weights(directory: Path) -> dict[str, dict[str, float]]:
    """Metrics by weights and images; those of averaged weights only where the run has some."""
    run = open_trained_run(directory)
    with Reporter(quiet=True) as reporter:
        checkpoint = find_checkpoint(run.directory, "newest", command="this benchmark", warn=reporter.warn)
    splits = open_data(run.recipe)
    found = {"plain weights": replace(checkpoint, averaged={})}
    if checkpoint.averaged:
        found["averaged weights"] = checkpoint
    rows: dict[str, dict[str, float]] = {}
    for name, weights in found.items():
        run.load(weights)
        rows |= {f"{name}, {images}": row for images, row in _measure(run, splits).items()}
    return rows


def _measure(run: TrainedRun, splits: DataSplits) -> dict[str, dict[str, float]]:
    assert splits.validation is not None, "a fold has validation images"
    evaluate = build_evaluator(
        run.recipe,
        model=run.model,
        source=splits.validation,
        preprocess=run.preprocess,
        device=run.device,
        flips=False,
    )
    with training_backends(run.device):
        as_they_are = evaluate(regions=True)
        changed = evaluate_model(
            run.model,
            _changed_images(run, splits, source=splits.validation),
            measure=build_measure(run.recipe, run.spec, wide_dtype=run.device.wide_dtype, regions=False),
            forward=in_precision(run.model, choose_precision(run.recipe, run.device)),
        )
    return {
        "images as they are": {name: as_they_are.as_metrics()[name] for name in NAMES},
        f"images as in training, {DRAWS_PER_IMAGE} draws": {
            name: changed.as_metrics()[name] for name in NAMES[:2]
        },
    }


def _changed_images(run: TrainedRun, splits: DataSplits, *, source: Source) -> Iterator[MicroBatch]:
    """Every image once per draw, changed by the recipe's augmentation."""
    feed = ResidentFeed(
        source,
        order=SampleOrder(
            seed=run.recipe.seed,
            samples=len(source),
            global_batch=len(source),
            updates_per_epoch=Fraction(1),
            remainder="trim",
            shuffle=False,
        ),
        preprocess=run.preprocess,
        micro_batch_size=len(source),
        device=run.device.torch_device,
        augmentation=augmentation_of(run.recipe, splits, run.preprocess),
    )
    try:
        for draw in range(DRAWS_PER_IMAGE):
            yield from feed.micro_batches(draw)
    finally:
        feed.close()
