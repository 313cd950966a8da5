"""`predict`: writes class probabilities of images and other samples; for masks, see predict_masks.py."""

import csv
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from drivetrain.catalogue.tasks import TaskName
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.data.files.crop import Fit
from drivetrain.data.files.decode import (
    BadSampleError,
    decode_image,
    image_of,
    naming_bad_sample,
)
from drivetrain.data.files.folder_files import is_animated_file
from drivetrain.data.sources.given_samples import is_array
from drivetrain.devices.backend_settings import training_backends
from drivetrain.inference.model.evaluator import validation_batch_size
from drivetrain.inference.model.restore import TrainedRun, find_checkpoint, open_trained_run, weights_sentence
from drivetrain.inference.model.trained_forward import TrainedForward
from drivetrain.inference.model.whole_images import flip_averaged
from drivetrain.inference.predict.given_numbers import GivenSamples, read_array, read_files
from drivetrain.inference.predict.inputs import (
    InputNotes,
    UnreadableInputError,
    expand_inputs,
    require_file_channels,
)
from drivetrain.inference.predict.mask_settings import MaskSettings
from drivetrain.inference.predict.predict_masks import predict_masks
from drivetrain.inference.predict.prediction_folder import (
    note_files,
    noted_files,
    require_free_names,
    require_outside_data,
    table_names,
    write_tables,
)
from drivetrain.models.own_model import GivenModel
from drivetrain.recipe.params import CompileMode
from drivetrain.tasks.from_recipe import build_task


def predict_run(
    path: str | Path,
    inputs: Sequence[str | Path] | Any,
    *,
    output: str | Path,
    reporter: Reporter,
    formats: Sequence[str] = ("csv",),
    checkpoint: str = "newest",
    device: str = "auto",
    model: GivenModel | None = None,
    masks: MaskSettings | None = None,
    compiles: CompileMode = "auto",
    notes: InputNotes | None = None,
) -> list[dict[str, Any]]:
    """Writes predictions.csv or predictions.json, and masks; returns one row per image or page, in order.

    `inputs` are files, or an array of samples of a classification run. Of a run on a table or on signals,
    files are .csv or .npy, with one row per sample. Image files that cannot be read are skipped and added to
    `notes`; if none can be read, it raises.
    """
    odd = InputNotes() if notes is None else notes
    folder = Path(output)
    files = [] if is_array(inputs) else _files_of(inputs, folder)
    settings = masks or MaskSettings()
    run = open_trained_run(path, device=device, model=model)
    found = find_checkpoint(run.directory, checkpoint, command="predict", warn=reporter.warn)
    run.load(found)
    settings.check(run.recipe, run.spec)
    require_outside_data(folder, run)
    reporter.say(weights_sentence(found))
    forward = TrainedForward(run, reporter=reporter, compiles=compiles)
    if settings.flips is not None:
        run = replace(run, recipe=run.recipe.model_copy(update={"flip_averaging": settings.flips}))
    given = _given_samples(inputs, files, run)
    predictors: dict[TaskName, Callable[..., list[dict[str, Any]]]] = {
        "classification": _predict_classes,
        "segmentation": partial(predict_masks, settings=settings),
    }
    with training_backends(run.device, is_deterministic=run.recipe.deterministic):
        if given is not None:
            return _predict_given(run, given, output=folder, formats=formats, forward=forward)
        rows = predictors[run.spec.task](
            run, files, output=folder, reporter=reporter, formats=formats, forward=forward, notes=odd
        )
    for sentence in odd.sentences(files=len(files)):
        reporter.warn(sentence)
    return rows


def _files_of(inputs: Sequence[str | Path], folder: Path) -> list[Path]:
    files = expand_inputs(inputs, leave_out=[folder / name for name in noted_files(folder)])
    if not files:
        raise BadInputError("INPUT is empty; give image files or folders of images.")
    return files


def _given_samples(inputs: Any, files: list[Path], run: TrainedRun) -> list[GivenSamples] | None:
    """The samples of an array, or of files that are no images; None for image files."""
    if is_array(inputs):
        return [GivenSamples(values=read_array(inputs, spec=run.spec))]
    return None if run.spec.input_kind == "image" else read_files(files, spec=run.spec)


def _predict_given(
    run: TrainedRun,
    given: list[GivenSamples],
    *,
    output: Path,
    formats: Sequence[str],
    forward: TrainedForward,
) -> list[dict[str, Any]]:
    """Writes the class probabilities of all samples; returns one row per sample, in order."""
    require_free_names(output, table_names(formats))
    batch_size = validation_batch_size(run.recipe, run.preprocess)
    rows: list[dict[str, Any]] = []
    for part in given:
        place = {} if part.file is None else {"file": str(part.file)}
        for start in range(0, len(part.values), batch_size):
            found = _probabilities(run, forward, part.values[start : start + batch_size])
            rows += [_row({**place, "sample": start + i}, values, run) for i, values in enumerate(found)]
    _write_tables(rows, output, formats)
    return rows


def _predict_classes(
    run: TrainedRun,
    files: list[Path],
    *,
    output: Path,
    reporter: Reporter,
    formats: Sequence[str],
    forward: TrainedForward,
    notes: InputNotes,
) -> list[dict[str, Any]]:
    """Writes the class probabilities of all files; returns one row per image, in order."""
    require_free_names(output, table_names(formats))
    rows = _predict_files(run, files, forward, reporter, notes)
    _write_tables(rows, output, formats)
    return rows


def _write_tables(rows: list[dict[str, Any]], folder: Path, formats: Sequence[str]) -> None:
    try:
        note_files(folder, table_names(formats))
        write_tables(folder, rows, formats, as_csv=_as_csv)
    except OSError as error:
        raise BadInputError(
            f"--output {folder} cannot be written to: {error.strerror}; give another folder."
        ) from error


def _predict_files(
    run: TrainedRun, files: list[Path], forward: TrainedForward, reporter: Reporter, notes: InputNotes
) -> list[dict[str, Any]]:
    batch_size = validation_batch_size(run.recipe, run.preprocess)
    rows: list[dict[str, Any]] = []
    reporter.start_progress("predicting", done=0, total=len(files))
    for start in range(0, len(files), batch_size):
        images = _readable(files[start : start + batch_size], run, notes)
        if images:
            probabilities = _probabilities(run, forward, np.stack(list(images.values())))
            rows += [
                _row({"file": str(path)}, values, run)
                for path, values in zip(images, probabilities, strict=True)
            ]
        done = min(start + batch_size, len(files))
        forward.progress(done, len(files))
        if reporter.progress_due():
            reporter.progress(done, "images")
    reporter.stop_progress()
    notes.require_some(files)
    return rows


def _readable(files: list[Path], run: TrainedRun, notes: InputNotes) -> dict[Path, NDArray[Any]]:
    """The images of those files that can be read."""
    images: dict[Path, NDArray[Any]] = {}
    for path in files:
        try:
            images[path] = read_image(path, run)
        except UnreadableInputError as error:
            notes.left_out[path] = error
    notes.animated += [path for path in images if is_animated_file(path)]
    return images


def read_image(path: Path, run: TrainedRun) -> NDArray[Any]:
    """An image file as the run's data set would hold it: its channels, its size, its range."""
    spec = run.spec
    require_file_channels(spec)
    fit = Fit(height=spec.height, width=spec.width, short_side=spec.short_side)
    try:
        with naming_bad_sample(str(path)):
            shaped = decode_image(
                image_of(path.read_bytes()),
                channels=spec.channels,
                size=(spec.width, spec.height),
                choose_box=fit.centre_box,
                white_level=spec.white_level,
            )
    except BadSampleError as error:
        raise UnreadableInputError(path, error.reason) from error
    return shaped if spec.image_dtype == "uint8" else (shaped / np.float32(255)).astype(np.float32)


@torch.inference_mode()
def _probabilities(run: TrainedRun, forward: TrainedForward, images: NDArray[Any]) -> NDArray[np.float32]:
    batch = torch.from_numpy(images).permute(0, 3, 1, 2).to(run.device.torch_device)
    compute = flip_averaged(run.recipe, run.spec, forward) if run.recipe.flip_averaging else forward
    logits = compute(run.preprocess(batch))
    probabilities: NDArray[np.float32] = build_task(run.recipe, run.spec).probabilities(logits).cpu().numpy()
    return probabilities


def _row(place: Mapping[str, Any], probabilities: NDArray[np.float32], run: TrainedRun) -> dict[str, Any]:
    names = run.spec.class_names
    best = int(probabilities.argmax())
    listed = {name: round(float(value), 6) for name, value in zip(names, probabilities, strict=True)}
    return {
        **place,
        "class": names[best],
        "probability": listed[names[best]],
        "probabilities": listed,
    }


def _as_csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    names = list(rows[0]["probabilities"])
    plain = [key for key in rows[0] if key != "probabilities"]
    writer.writerow([*plain, *(f"p_{name}" for name in names)])
    for row in rows:
        writer.writerow([*(row[key] for key in plain), *row["probabilities"].values()])
    return text.getvalue()
