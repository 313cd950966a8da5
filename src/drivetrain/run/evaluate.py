"""Metrics of a run's checkpoints on one of its splits."""

from pathlib import Path
from typing import Any

from torch import nn

from drivetrain.data.source import DataSplits, Source
from drivetrain.data.splits import open_data
from drivetrain.errors import BadInputError
from drivetrain.program.build import build_task
from drivetrain.program.evaluation import evaluate_model
from drivetrain.recipe.schema import Recipe
from drivetrain.run.assemble import evaluation_feed
from drivetrain.run.files import write_json
from drivetrain.run.reporter import Reporter
from drivetrain.run.restore import find_checkpoints, open_trained_run

PYTHON_DATA = "python:data"
SPLITS = ("validation", "test", "train")


def evaluate_run(
    path: str | Path,
    *,
    reporter: Reporter,
    split: str = "validation",
    checkpoint: str = "newest",
    data_dir: str | None = None,
    device: str = "auto",
    data: DataSplits | None = None,
    model: nn.Module | None = None,
) -> list[dict[str, Any]]:
    """One row of metrics per checkpoint; also kept as evaluation-<split>.json in the run."""
    run = open_trained_run(path, device=device, model=model)
    checkpoints = find_checkpoints(run.directory, checkpoint)
    recipe = run.recipe if data_dir is None else run.recipe.model_copy(update={"data_dir": data_dir})
    source = _choose_split(_open(recipe) if data is None else data, split, recipe)
    feed = evaluation_feed(recipe, source=source, preprocess=run.preprocess, device=run.device)
    rows: list[dict[str, Any]] = []
    for found in checkpoints:
        run.load(found)
        reporter.start_progress(f"update {found.update}", done=0, total=len(source))
        result = evaluate_model(
            run.model,
            feed,
            task=build_task(recipe),
            wide_dtype=run.device.wide_dtype,
            on_batch=lambda done: _show(reporter, done),
        )
        reporter.stop_progress()
        rows.append(
            {
                "split": split,
                "update": found.update,
                "loss": result.loss,
                "accuracy": result.accuracy,
                "samples": result.samples,
            }
        )
    write_json(run.directory.path / f"evaluation-{split}.json", {"evaluations": rows})
    return rows


def _show(reporter: Reporter, done: int) -> None:
    if reporter.progress_due():
        reporter.progress(done, "samples")


def _open(recipe: Recipe) -> DataSplits:
    if recipe.dataset == PYTHON_DATA:
        raise BadInputError(
            "this run was trained on data given in Python; evaluate it there: "
            "drivetrain.evaluate(RUN, data=...)."
        )
    return open_data(recipe)


def _choose_split(data: DataSplits, split: str, recipe: Recipe) -> Source:
    source = {"train": data.train, "validation": data.validation, "test": data.test}[split]
    if source is None:
        there = [
            name
            for name in SPLITS
            if {"validation": data.validation, "test": data.test, "train": data.train}[name]
        ]
        raise BadInputError(
            f"--split {split} is not in {recipe.dataset}; --split {' or --split '.join(there)} works."
        )
    return source
