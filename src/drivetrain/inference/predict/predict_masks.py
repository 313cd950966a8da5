"""Predicts masks for image files of any size, and writes them with overlays and a summary table."""

import csv
import io
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from drivetrain.catalogue.models import output_margin_of
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import BadInputError
from drivetrain.core.files import write_atomically
from drivetrain.core.progress import showing_progress
from drivetrain.inference.model.restore import TrainedRun
from drivetrain.inference.model.tiles import DEFAULT_OVERLAP
from drivetrain.inference.model.trained_forward import TrainedForward
from drivetrain.inference.model.whole_images import image_logits, whole_image_forward
from drivetrain.inference.predict.inputs import InputNotes, require_file_channels
from drivetrain.inference.predict.mask_inputs import MaskInput, check_inputs, read_pages
from drivetrain.inference.predict.mask_settings import MaskFormat, MaskSettings
from drivetrain.inference.predict.mask_writer import (
    PageWriter,
    mask_codes,
    open_mask_file,
    page_name,
    tiff_pages,
)
from drivetrain.inference.predict.prediction_folder import (
    note_files,
    require_free_names,
    table_names,
    write_tables,
)
from drivetrain.pictures.overlays import overlay_sheet

__all__ = ["predict_masks"]


def predict_masks(
    run: TrainedRun,
    files: Sequence[Path],
    *,
    output: str | Path,
    reporter: Reporter,
    formats: Sequence[str] = ("csv",),
    settings: MaskSettings,
    forward: TrainedForward | None = None,
    notes: InputNotes | None = None,
) -> list[dict[str, Any]]:
    """Writes the masks of all files and a summary table; returns one row per page, in order.

    Every input is read completely before anything is written; unreadable files are skipped and noted.
    """
    require_file_channels(run.spec)
    folder = Path(output)
    _require_another_folder(files, folder)
    with showing_progress(reporter):
        entries = check_inputs(files, run.spec, notes=InputNotes() if notes is None else notes)
    forward = forward or TrainedForward(run, reporter=reporter)
    predictor = _Predictor(run, folder=folder, forward=forward, settings=settings, say=reporter.say)
    names = [*predictor.names(entries), *table_names(formats)]
    require_free_names(folder, names)
    with _naming_output(folder):
        note_files(folder, names)
        rows = _predict_entries(predictor, entries, forward, reporter)
        write_tables(folder, rows, formats, as_csv=_as_csv)
    return rows


def _predict_entries(
    predictor: "_Predictor", entries: list[MaskInput], forward: TrainedForward, reporter: Reporter
) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    pages = sum(entry.pages for entry in entries)
    reporter.start_progress("predicting", done=0, total=pages)
    for entry in entries:
        for row in predictor.predict(entry):
            rows.append(row)
            forward.progress(len(rows), pages)
            if reporter.progress_due():
                reporter.progress(len(rows), "images")
    reporter.stop_progress()
    return rows


class _Predictor:
    """Runs the model over files, and writes the outputs of each page."""

    def __init__(
        self,
        run: TrainedRun,
        *,
        folder: Path,
        forward: TrainedForward,
        settings: MaskSettings,
        say: Callable[[str], None],
    ) -> None:
        self._run = run
        self._folder = folder
        self._settings = settings
        self._codes = mask_codes(run.spec)
        flips, overlap = settings.flips, settings.tile_overlap
        self._forward = whole_image_forward(
            run.recipe,
            run.spec,
            forward,
            margin=output_margin_of(run.recipe.model),
            flips=run.recipe.flip_averaging if flips is None else flips,
            overlap=DEFAULT_OVERLAP if overlap is None else overlap,
            say=say,
        )

    def predict(self, entry: MaskInput) -> Iterator[dict[str, Any]]:
        """Writes the output files of one input; yields a row for each page."""
        with ExitStack() as files:
            write_mask = files.enter_context(self._mask_file(entry))
            write_plane = files.enter_context(self._probability_file(entry))
            for page, image in enumerate(read_pages(entry.path, self._run.spec), start=1):
                logits = image_logits(
                    self._forward, image, spec=self._run.spec, device=self._run.device.torch_device
                )
                classes = logits.argmax(0).to(torch.uint8).cpu().numpy()
                if write_plane is not None:
                    for plane in logits.softmax(0).cpu().numpy():
                        write_plane(plane)
                self._write_overlay(entry, page, image, classes)
                yield self._row(entry, page, classes, mask=write_mask(self._codes[classes]))

    def names(self, entries: Sequence[MaskInput]) -> Iterator[str]:
        """The names of all files that `predict` writes for these inputs."""
        for entry in entries:
            pages = range(1, entry.pages + 1)
            if self._mask_format(entry) == "tiff":
                yield f"{entry.stem}-mask.tif"
            else:
                yield from (page_name(entry, page, kind="mask") for page in pages)
            if self._settings.probabilities:
                yield _probability_name(entry)
            if self._settings.overlay is not False:
                yield from (page_name(entry, page, kind="overlay") for page in pages)

    def _mask_file(self, entry: MaskInput) -> AbstractContextManager[PageWriter]:
        return open_mask_file(self._folder, entry, self._mask_format(entry))

    def _mask_format(self, entry: MaskInput) -> MaskFormat:
        return self._settings.mask_format or ("tiff" if entry.pages > 1 else "png")

    def _probability_file(self, entry: MaskInput) -> AbstractContextManager[PageWriter | None]:
        """A TIFF in float32: all classes of the first page, then all classes of the second, and so on."""
        if not self._settings.probabilities:
            return nullcontext()
        raw_bytes = entry.pixels * self._run.spec.num_classes * 4
        return tiff_pages(self._folder / _probability_name(entry), raw_bytes=raw_bytes)

    def _write_overlay(
        self, entry: MaskInput, page: int, image: NDArray[Any], classes: NDArray[np.uint8]
    ) -> None:
        if self._settings.overlay is False:
            return
        name = entry.path.name if entry.pages == 1 else f"{entry.path.name}, page {page}"
        sheet = overlay_sheet(
            [image], [None], [classes], names=[name], class_names=self._run.spec.class_names
        )
        write_atomically(self._folder / page_name(entry, page, kind="overlay"), sheet)

    def _row(self, entry: MaskInput, page: int, classes: NDArray[np.uint8], *, mask: str) -> dict[str, Any]:
        names = self._run.spec.class_names
        shares = np.bincount(classes.ravel(), minlength=len(names)) / classes.size
        return {
            "file": str(entry.path),
            "page": page,
            "height": classes.shape[0],
            "width": classes.shape[1],
            "mask": mask,
            "shares": {name: round(float(share), 6) for name, share in zip(names, shares, strict=True)},
        }


def _probability_name(entry: MaskInput) -> str:
    return f"{entry.stem}-probabilities.tif"


def _require_another_folder(files: Sequence[Path], folder: Path) -> None:
    """Refuses to write beside the inputs: masks of the user may have the very names to be written."""
    for path in files:
        if path.resolve().parent == folder.resolve():
            raise BadInputError(
                f"--output {folder} is the folder of INPUT {path}, where your own masks could be "
                f"overwritten; give another folder."
            )


@contextmanager
def _naming_output(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise BadInputError(
            f"--output {folder} cannot be written to: {error.strerror}; give another folder."
        ) from error


def _as_csv(rows: list[dict[str, Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    plain = [key for key in rows[0] if key != "shares"]
    writer.writerow([*plain, *(f"share_{name}" for name in rows[0]["shares"])])
    for row in rows:
        writer.writerow([*(row[key] for key in plain), *row["shares"].values()])
    return text.getvalue()
