"""`export`: writes a run's model with its preprocessing to files for other programs, and checks them."""

import hashlib
import math
import platform
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from drivetrain.catalogue.models import output_margin_of
from drivetrain.console.reporter import Reporter
from drivetrain.core.errors import RunFailedError
from drivetrain.core.files import write_json
from drivetrain.data.preprocess import Preparation, channels_last_view, normalise_dense
from drivetrain.data.source import DataSpec
from drivetrain.inference.export.export_formats import (
    FILE_OF,
    WEIGHTS,
    Runner,
    available_formats,
    check_formats,
    write_format,
)
from drivetrain.inference.export.export_module import ExportModule, OutputKind
from drivetrain.inference.export.export_weights import Naming, named_weights, write_weights
from drivetrain.inference.model.fold_batch_norm import fold_batch_norm
from drivetrain.inference.model.restore import TrainedRun, find_checkpoint, open_trained_run, weights_sentence
from drivetrain.inference.model.whole_images import whole_image_forward, whole_image_graph
from drivetrain.passes.forward import Forward
from drivetrain.store.directory import check_writable, open_run
from drivetrain.tasks.from_recipe import build_task

__all__ = ["ExportResult", "export_run"]

DESCRIPTION = "export.json"
# Neither is the batch size that the model is exported with (`_EXAMPLE_BATCH`): a fixed batch size would show.
_CHECKED_BATCHES = (1, 3)
# If images may have any size, smaller and larger ones than in the training are checked too (as factors).
_CHECKED_SIZES = ((0.6, 0.8), (1.7, 1.3))
_MEMORY = "all tiles of an image are computed at once, so memory use grows with the image size"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportResult:
    """The folder written to, and the largest difference of each program's output from the run's."""

    folder: Path
    differences: dict[str, float]
    weights: Path | None
    """The file with the weights alone, if it was asked for."""
    folded: int
    usage: str


def export_run(
    path: str | Path,
    *,
    reporter: Reporter,
    output: str | Path | None = None,
    formats: tuple[str, ...] | None = None,
    checkpoint: str = "newest",
    gives: OutputKind = "probabilities",
    folds: bool = True,
    tolerance: float = 1e-4,
    naming: Naming = "own",
    model: nn.Module | None = None,
) -> ExportResult:
    """Writes a run's model and a description of it; writes nothing if a file does not agree with the run.

    `naming` says whose names the weights get in the format safetensors, which holds weights only.
    """
    chosen = available_formats() if formats is None else tuple(dict.fromkeys(formats))
    check_formats(chosen)
    folder = Path(output) if output is not None else open_run(path).path / "export"
    check_writable(folder, option="--output", works="exported")
    run = open_trained_run(path, device="cpu", model=model)
    found = find_checkpoint(run.directory, checkpoint, command="export", warn=reporter.warn)
    run.load(found)
    reporter.say(weights_sentence(found))
    run.model.eval()
    with tempfile.TemporaryDirectory() as scratch:
        exporter = _Exporter(
            run, folder=Path(scratch), gives=gives, folds=folds and chosen != (WEIGHTS,), tolerance=tolerance
        )
        for name in chosen:
            if name == WEIGHTS:
                exporter.write_weights(naming)
                continue
            with reporter.showing(f"exporting {FILE_OF[name]}"):
                exporter.write(name)
        exporter.describe(update=found.update)
        _move(Path(scratch), folder)
    return ExportResult(
        folder=folder,
        weights=None if exporter.weights_file is None else folder / exporter.weights_file,
        differences=exporter.differences,
        folded=len(exporter.folded),
        usage=exporter.usage,
    )


class _Exporter:
    """Writes the formats of one run's model into a folder, and checks each against the run."""

    def __init__(
        self, run: TrainedRun, *, folder: Path, gives: OutputKind, folds: bool, tolerance: float
    ) -> None:
        self._run, self._folder, self._gives, self._tolerance = run, folder, gives, tolerance
        self._task = build_task(run.recipe, run.spec)
        folded = fold_batch_norm(run.model) if folds else None
        self.folded = () if folded is None else folded.folded
        ready = run.model if folded is None else folded.model
        self._is_dense = run.spec.has_dense_labels
        self._module = ExportModule(
            ready,
            preprocess=run.preprocess,
            task=self._task,
            output=gives,
            geometry=self._geometry if self._is_dense else None,
        ).eval()
        # The exported program must not compute gradients.
        self._module.requires_grad_(False)
        self.differences: dict[str, float] = {}
        self.weights_file: str | None = None

    def write(self, name: str) -> None:
        """Writes one format; raises if its output differs too much from the run's."""
        file = FILE_OF[name]
        runner = write_format(self._module, name, self._folder / file)
        difference = self._difference(runner)
        if not difference <= self._tolerance:
            raise RunFailedError(
                f"{file} differs from the run by up to {difference:.3g}, more than --tolerance "
                f"{self._tolerance:g}; nothing was written{self._advice()}."
            )
        self.differences[file] = difference

    def write_weights(self, naming: Naming) -> None:
        """Writes the weights alone, before any folding."""
        file = FILE_OF[WEIGHTS]
        write_weights(named_weights(self._run.recipe, self._run.model, naming=naming), self._folder / file)
        self.weights_file = file

    def _advice(self) -> str:
        return "; --fold-batch-norm False leaves the model as it is" if self.folded else ""

    @torch.no_grad()
    def _difference(self, runner: Runner) -> float:
        """The largest difference in probability or, for exported classes, the largest share that differs."""
        images = [self._module.example(batch, seed=seed) for seed, batch in enumerate(_CHECKED_BATCHES)]
        if self._is_dense:
            images += [self._module.example(1, size=size) for size in self._checked_sizes()]
        return max(_largest_difference(self._own_output(some), runner(some)) for some in images)

    def _checked_sizes(self) -> list[tuple[int, int]]:
        height, width = self._module.input_shape[:2]
        return [(max(1, int(down * height)), max(1, int(across * width))) for down, across in _CHECKED_SIZES]

    def _geometry(self, model: Forward) -> Forward:
        return whole_image_graph(self._run.recipe, self._run.spec, model, margin=self._margin)

    @property
    def _margin(self) -> int:
        return output_margin_of(self._run.recipe.model)

    def _own_output(self, images: Tensor) -> Tensor:
        """The output of `predict` for these images."""
        run = self._run
        if self._is_dense:
            forward = whole_image_forward(run.recipe, run.spec, run.model, margin=self._margin)
            logits = forward(normalise_dense(channels_last_view(images), run.spec))
        else:
            logits = run.model(run.preprocess(self._module.stored(images)))
        return logits.argmax(1) if self._gives == "classes" else self._task.probabilities(logits)

    def describe(self, *, update: int) -> None:
        """Writes export.json, which describes the files."""
        spec, preprocess = self._run.spec, self._run.preprocess
        files = {
            file: {**self._facts_of(file), "max_difference": difference}
            for file, difference in self.differences.items()
        }
        if self.weights_file is not None:
            files[self.weights_file] = self._facts_of(self.weights_file)
        description: dict[str, Any] = {
            "model": self._run.recipe.model,
            "task": spec.task,
            "class_names": list(spec.class_names),
            "checkpoint": update,
            "input": {
                "name": self._module.input_name,
                "layout": self._module.layout,
                "shape": self.input_shape,
                "dtype": spec.image_dtype,
                "file_short_side": spec.short_side,
            },
            "preprocessing": _preprocessing_words(preprocess),
            **({"memory": self._memory} if self._is_dense else {}),
            "output": {"gives": self._gives, "layout": self._output_layout, "shape": self._output_shape()},
            "folded_batch_norms": len(self.folded),
            "files": files,
            "versions": {"torch": torch.__version__, "python": platform.python_version()},
        }
        write_json(self._folder / DESCRIPTION, description)

    def _facts_of(self, file: str) -> dict[str, Any]:
        content = (self._folder / file).read_bytes()
        return {"sha256": hashlib.sha256(content).hexdigest(), "bytes": len(content)}

    @property
    def input_shape(self) -> list[int | str]:
        """The input shape in the order of the layout; free dimensions are named, such as "batch"."""
        shape = self._module.input_shape
        return ["batch", "height", "width", shape[-1]] if self._is_dense else ["batch", *shape]

    @property
    def _output_layout(self) -> str:
        if self._is_dense:
            return "NHW" if self._gives == "classes" else "NCHW"
        return "N" if self._gives == "classes" else "NC"

    @torch.no_grad()
    def _output_shape(self) -> list[int | str]:
        shape = self._module(self._module.example(1)).shape[1:]
        return ["batch", *shape[:-2], "height", "width"] if self._is_dense else ["batch", *shape]

    @property
    def usage(self) -> str:
        """One sentence on the input and the output of the files."""
        spec = self._run.spec
        one_size = "images of one size" if spec.input_kind == "image" else spec.input_words
        sizes = "images of any height and width" if self._is_dense else one_size
        taken = f"{spec.image_dtype} {_in_brackets(self.input_shape)}, {self._module.layout}"
        given = f"{self._gives} {_in_brackets(self._output_shape())}, {self._output_layout}"
        memory = f"; {self._memory}" if self._is_dense else ""
        return f"input: {sizes}, `{self._module.input_name}` {taken}; output: {given}{memory}"

    @property
    def _memory(self) -> str:
        height, width = max(self._checked_sizes(), key=math.prod)
        return f"{_MEMORY}; the largest size tested here is {height}x{width}"


def _in_brackets(shape: list[int | str]) -> str:
    return f"({', '.join(map(str, shape))})"


def _largest_difference(own: Tensor, found: Tensor) -> float:
    if own.shape != found.shape:
        return float("inf")
    if own.dtype.is_floating_point:
        return float((own - found).abs().max())
    return float((own != found).float().mean())


def _preprocessing_words(preprocess: Preparation) -> list[str]:
    """The preprocessing inside the exported model, step by step; callers must not repeat it."""
    spec = preprocess.spec
    size = preprocess.picture_size
    words = [f"{spec.image_dtype} to float32"]
    if spec.tile is None and size != (spec.height, spec.width):
        words.append(f"bilinear to {size[0]}x{size[1]}")
    if spec.image_dtype == "uint8":
        words.append(f"normalised: {_normalisation_words(spec)}")
    if spec.has_dense_labels:
        tile = f"{size[0]}x{size[1]}"
        words.append(f"images of other sizes than {tile}: overlapping tiles of {tile}, as in predict")
    return words


def _normalisation_words(spec: DataSpec) -> str:
    if spec.normalisation != "per-channel":
        return spec.normalisation
    mean, std = (", ".join(f"{value:g}" for value in values) for values in spec.channel_values)
    return f"divided by 255, then mean {mean} subtracted and divided by {std}, channel by channel"


def _move(scratch: Path, folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in scratch.iterdir():
            beside = folder / f".{file.name}.partial"
            shutil.copyfile(file, beside)
            beside.replace(folder / file.name)
    except OSError as error:
        raise RunFailedError(f"--output {folder} could not be written: {error.strerror or error}.") from error
