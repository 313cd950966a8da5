"""Metrics of a run's checkpoints on one of its splits."""

from pathlib import Path
from typing import Any

from torch import nn

from drivetrain.data.bad_samples import without_bad
from drivetrain.data.source import DataSplits, Source
from drivetrain.data.splits import open_data
from drivetrain.errors import BadInputError
from drivetrain.program.build import build_task
from drivetrain.program.evaluation import Evaluation, evaluate_model
from drivetrain.recipe.schema import Recipe
from drivetrain.run.assemble import evaluation_feed
from drivetrain.run.confusion import write_confusion
from drivetrain.run.directory import PYTHON_DATA
from drivetrain.run.files import write_json
from drivetrain.run.reporter import Reporter
from drivetrain.run.restore import find_checkpoints, open_trained_run

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
    checkpoints = find_checkpoints(run.directory, checkpoint, warn=reporter.warn)
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
            num_classes=run.spec.num_classes,
            wide_dtype=run.device.wide_dtype,
            on_batch=lambda done: _show(reporter, done),
        )
        reporter.stop_progress()
        rows.append({"split": split, "update": found.update, **_row(result)})
    write_json(run.directory.path / f"evaluation-{split}.json", {"evaluations": rows})
    write_confusion(run.directory, result, names=run.spec.class_names, stem=f"confusion-{split}")
    return rows


def _row(result: Evaluation) -> dict[str, Any]:
    row: dict[str, Any] = {"loss": result.loss, "accuracy": result.accuracy, "samples": result.samples}
    if result.top5_accuracy is not None:
        row["top5_accuracy"] = result.top5_accuracy
    return {**row, "class_accuracies": result.class_accuracies}


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
    sources = {"validation": data.validation, "test": data.test, "train": data.train}
    source = sources[split]
    if source is None:
        there = [name for name in SPLITS if sources[name] is not None]
        raise BadInputError(
            f"--split {split} is not in {recipe.dataset}; --split {' or --split '.join(there)} works."
        )
    return without_bad(source)
