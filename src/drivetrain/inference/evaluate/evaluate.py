"""`evaluate`: computes the metrics of a run's checkpoints on one split of its data."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import Any

from drivetrain.catalogue.data_sets import is_external_dataset
from drivetrain.catalogue.input_kinds import plural_of
from drivetrain.catalogue.models import nearest_image_size
from drivetrain.catalogue.tasks import task_info
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import write_json
from drivetrain.core.progress import showing_progress
from drivetrain.data.bad_samples import without_bad
from drivetrain.data.preprocess import Preparation, build_preparation
from drivetrain.data.source import DataSpec, DataSplits, Source
from drivetrain.data.splits import open_data
from drivetrain.data.training_tiles import UniformSource, masked_of
from drivetrain.devices.backend_settings import training_backends
from drivetrain.findings.findings import evaluation_findings
from drivetrain.findings.record import Measured
from drivetrain.inference.evaluate.evaluation_files import write_evaluation
from drivetrain.inference.evaluate.evaluation_overlays import painting
from drivetrain.inference.evaluate.given_data import divide_given
from drivetrain.inference.model.evaluator import Evaluator, build_evaluator
from drivetrain.inference.model.restore import (
    TrainedRun,
    find_checkpoints,
    open_trained_run,
    weights_sentence,
)
from drivetrain.inference.model.trained_forward import TrainedForward
from drivetrain.inference.predict.mask_settings import MaskSettings
from drivetrain.models.own_model import GivenModel
from drivetrain.recipe.params import CompileMode
from drivetrain.recipe.schema import Recipe
from drivetrain.store.checkpoint import Checkpoint
from drivetrain.store.data_files import warn_of_other_data, warn_of_seen
from drivetrain.store.directory import PYTHON_DATA, RunDirectory
from drivetrain.tasks.task import Evaluation

SPLITS = ("validation", "test", "train", "all")


def evaluate_run(
    path: str | Path,
    *,
    reporter: Reporter,
    split: str | None = None,
    checkpoint: str = "newest",
    data_dir: str | None = None,
    device: str = "auto",
    flips: bool | None = None,
    tile_overlap: float | None = None,
    overlay: bool | None = None,
    compiles: CompileMode = "auto",
    data: Any = None,
    model: GivenModel | None = None,
) -> list[dict[str, Any]]:
    """One row of metrics per checkpoint, also written to evaluation-<split>.json in the run.

    The last one has `findings`: sentences about what stands out, if anything does.

    The default `split` is "validation". If `data` is given in Python and is not the data of the run, the
    default is "all". `overlay` writes pictures of the last checkpoint's predictions to `overlay_folder`.
    """
    run = open_trained_run(path, device=device, model=model)
    MaskSettings(flips=flips, tile_overlap=tile_overlap, overlay=overlay).check(run.recipe, run.spec)
    checkpoints = find_checkpoints(run.directory, checkpoint, warn=reporter.warn)
    recipe = run.recipe if data_dir is None else run.recipe.model_copy(update={"data_dir": data_dir})
    splits, split = _splits(run, recipe, data, split=split, reporter=reporter)
    source = _choose_split(splits, split, recipe)
    if data is None:
        _say_what_was_seen(recipe, splits, run, split=split, reporter=reporter)
    forward = TrainedForward(run, reporter=reporter, compiles=compiles, exact=True)
    evaluate = build_evaluator(
        recipe,
        model=run.model,
        source=source,
        preprocess=_preparation(recipe, run.spec, now=splits.spec),
        device=run.device,
        flips=flips,
        overlap=tile_overlap,
        forward=forward,
    )
    _say_which_weights(checkpoints, checkpoint, reporter)
    measured = _Measured(run=run, source=source, split=split, forward=forward, reporter=reporter)
    rows, last = measured.by(evaluate, checkpoints, paints=bool(overlay))
    rows[-1] |= _findings(run, last, source=source, split=split)
    settings = {"data_dir": recipe.data_dir, "flips": flips, "tile_overlap": tile_overlap}
    write_json(run.directory.path / f"evaluation-{split}.json", {"evaluations": rows, "settings": settings})
    write_evaluation(run.directory, last, source=source, names=run.spec.class_names, split=split)
    return rows


def _findings(run: TrainedRun, last: Evaluation, *, source: Source, split: str) -> dict[str, list[str]]:
    """What stands out in an evaluation, for its row."""
    measured = Measured(evaluation=last, source=source, class_names=run.spec.class_names, split=split)
    found = evaluation_findings(run.recipe, measured)
    return {"findings": found} if found else {}


def _splits(
    run: TrainedRun, recipe: Recipe, data: Any, *, split: str | None, reporter: Reporter
) -> tuple[DataSplits, str]:
    """The data that the split is taken from, and the name of the split."""
    with showing_progress(reporter):
        if data is None:
            split = split or "validation"
            splits = _open(recipe, run, split=split)
        else:
            splits, split = divide_given(data, recipe=recipe, directory=run.directory, split=split)
    _require_same_kind(splits.spec, run.spec)
    return splits, split


def _say_which_weights(checkpoints: Sequence[Checkpoint], asked: str, reporter: Reporter) -> None:
    first = checkpoints[0]
    if asked == "best" and first.best is not None:
        reporter.say(f"best checkpoint: {first.best.sentence()}")
    elif asked != "all":
        reporter.say(weights_sentence(first))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Measured:
    """A run whose checkpoints are evaluated on the samples of a split, one after the other."""

    run: TrainedRun
    source: Source
    split: str
    forward: TrainedForward
    reporter: Reporter

    def by(
        self, evaluate: Evaluator, checkpoints: Sequence[Checkpoint], *, paints: bool
    ) -> tuple[list[dict[str, Any]], Evaluation]:
        """A row of metrics for each checkpoint, and the full evaluation of the last.

        With `paints`, the predictions of the last checkpoint are also drawn.
        """
        rows = []
        for found in checkpoints:
            if paints and found is checkpoints[-1]:
                evaluate = self._painting(evaluate)
            last = self._one(evaluate, found)
            rows.append({"split": self.split, "update": found.update, **_row(last)})
        return rows, last

    def _painting(self, evaluate: Evaluator) -> Evaluator:
        folder, names = overlay_folder(self.run.directory, split=self.split), self.run.spec.class_names
        return painting(evaluate, source=self.source, folder=folder, class_names=names)

    def _one(self, evaluate: Evaluator, checkpoint: Checkpoint) -> Evaluation:
        self.run.load(checkpoint)
        self.forward.refresh()
        total = len(self.source)
        with (
            self.reporter.showing(f"evaluating update {checkpoint.update}", total=total),
            training_backends(self.run.device, is_deterministic=self.run.recipe.deterministic),
        ):
            return evaluate(regions=True, on_batch=partial(_note, self.reporter, self.forward, total))


def overlay_folder(directory: RunDirectory, *, split: str) -> Path:
    """The folder with the overlays of a split, one NAME-overlay.png per image."""
    return directory.predictions / f"evaluation-{split}"


def _row(result: Evaluation) -> dict[str, Any]:
    metrics: dict[str, Any] = result.as_metrics()
    row = {name: value for name, value in metrics.items() if name != "validation_samples"}
    return {**row, "samples": result.samples, **result.of_classes()}


def _note(reporter: Reporter, forward: TrainedForward, total: int, done: int) -> None:
    forward.progress(done, total)
    if reporter.progress_due():
        reporter.progress(done, "samples")


def _say_what_was_seen(
    recipe: Recipe, data: DataSplits, run: TrainedRun, *, split: str, reporter: Reporter
) -> None:
    """Refuses, or warns about, samples that are evaluated as unseen although the run was trained on them."""
    trained_in = run.recipe.data_dir
    warnings = warn_of_seen(recipe, data, split=split, trained_in=trained_in, directory=run.directory)
    if is_external_dataset(recipe.dataset) and split in ("validation", "train"):
        warnings += warn_of_other_data(recipe, data, trained_in=trained_in, directory=run.directory)
    for warning in warnings:
        reporter.warn(warning)


def _open(recipe: Recipe, run: TrainedRun, *, split: str) -> DataSplits:
    spec = run.spec
    if recipe.dataset == PYTHON_DATA:
        raise BadInputError(
            "this run was trained on data given in Python; evaluate it there: "
            "drivetrain.evaluate(RUN, data=...)."
        )
    if split == "all":
        recipe = _undivided(recipe)
    elif is_external_dataset(recipe.dataset):
        # Split exactly as in the training, so that the samples can be matched with the training's record.
        return open_data(recipe)
    if spec.has_dense_labels and recipe.image_size is None:
        # Images are evaluated whole, at any size. A tile size keeps the data set from refusing sizes that the
        # model could not take as samples.
        tile = spec.tile or nearest_image_size(recipe.model, min(spec.height, spec.width))
        recipe = recipe.model_copy(update={"tile_size": tile})
    return open_data(recipe)


def _require_same_kind(now: DataSpec, then: DataSpec) -> None:
    """Refuses data with other classes or another image format than the run was trained on."""
    for number, (found, trained) in enumerate(zip_longest(now.class_names, then.class_names)):
        if found not in (None, trained):
            raise BadInputError(
                f"class {number} of the data is {found}, but in RUN it is {trained or 'missing'}; evaluate "
                "RUN on data with the same classes (see --data-dir)."
            )
    if _form(now) != _form(then):
        raise BadInputError(
            f"the data are {_form(now)}, but RUN was trained on {_form(then)}; evaluate RUN on such "
            f"{plural_of(then.input_kind)} (see --data-dir)."
        )


def _form(spec: DataSpec) -> str:
    """The format that all images of a run share; includes the size only if the model takes no other size."""
    if spec.input_kind != "image":
        return spec.input_words
    size = "" if task_info(spec.task).takes_any_shape else f"{spec.height}x{spec.width} pixels, "
    return f"images of {size}{spec.channels} channels, {spec.image_dtype}, for {spec.task}"


def _preparation(recipe: Recipe, spec: DataSpec, *, now: DataSpec) -> Preparation:
    """The preprocessing of the training; with --image-size, it also scales images of other sizes."""
    if task_info(spec.task).takes_any_shape and recipe.image_size is not None:
        spec = replace(spec, height=now.height, width=now.width)
    return build_preparation(recipe, spec)


def _undivided(recipe: Recipe) -> Recipe:
    """The recipe without any split or limit, so that it uses all samples."""
    changes: dict[str, Any] = {"folds": None, "fold": None, "validation_fraction": 0.0}
    changes |= {"group_by": None, "split_scheme": "random"}
    return recipe.model_copy(
        update={**changes, "limit_train_samples": None, "limit_validation_samples": None}
    )


def _choose_split(data: DataSplits, split: str, recipe: Recipe) -> Source:
    sources = {"validation": data.validation, "test": data.test, "train": data.train}
    is_divided = data.validation is not None or data.test is not None
    source = sources[split] if split != "all" else None if is_divided else data.train
    if source is None:
        there = [name for name in sources if sources[name] is not None]
        raise BadInputError(_no_such_split(split, there=there, recipe=recipe))
    good = without_bad(source)
    return UniformSource(masked_of(good)) if data.spec.has_dense_labels else good


def _no_such_split(split: str, *, there: list[str], recipe: Recipe) -> str:
    works = f"--split {' or --split '.join(there)} works"
    if split != "all":
        return f"--split {split} does not exist in {recipe.dataset}; {works}."
    where = recipe.dataset if recipe.data_dir is None else f"--data-dir {recipe.data_dir}"
    return (
        f"--split all is for data without a split of their own, but {where} is divided into "
        f"{' and '.join(there)}; {works}."
    )
