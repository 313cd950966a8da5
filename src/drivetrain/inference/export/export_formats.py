"""The export formats: writes each one, and reads it back so that it can be checked."""

import importlib
import importlib.util
import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from drivetrain.core.errors import BadInputError, RunFailedError
from drivetrain.core.factories import describe_failure
from drivetrain.inference.export.export_module import ExportModule

__all__ = [
    "FILE_OF",
    "WEIGHTS",
    "Runner",
    "available_formats",
    "check_formats",
    "missing_packages",
    "write_format",
]

WEIGHTS = "safetensors"
FILE_OF = {"pt2": "model.pt2", "onnx": "model.onnx", WEIGHTS: "model.safetensors"}
_LISTED = "pt2, onnx or safetensors"
_ONNX_PACKAGES = ("onnx", "onnxruntime", "onnxscript")
# torch.export takes a dimension of size 0 or 1 for a constant, so the example batch has 2 images.
_EXAMPLE_BATCH = 2
# The example image has more than one tile and odd sizes, so that no free size looks like a constant.
_LARGER_BY = (37, 51)

Runner = Callable[[Tensor], Tensor]


def available_formats() -> tuple[str, ...]:
    """The formats of programs that can be written with the installed packages."""
    return ("pt2",) if missing_packages() else ("pt2", "onnx")


def check_formats(formats: tuple[str, ...]) -> None:
    """Raises for an unknown format, and for a format whose packages are not installed."""
    for name in formats:
        if name not in FILE_OF:
            raise BadInputError(f"--format {name} is unknown; --format {_LISTED} works.")
    missing = missing_packages()
    if "onnx" in formats and missing:
        raise BadInputError(
            f"--format onnx needs packages that are not installed; run pip install {' '.join(missing)}, or "
            "use --format pt2."
        )


def missing_packages() -> list[str]:
    """The packages that ONNX export needs and that are not installed."""
    return [name for name in _ONNX_PACKAGES if importlib.util.find_spec(name) is None]


def write_format(module: ExportModule, name: str, path: Path) -> Runner:
    """Writes a module with its free dimensions, and returns a function that runs the written file."""
    try:
        with _quietly():
            program = _exported(module)
            if name == "pt2":
                return _write_pt2(program, path)
            return _write_onnx(program, path, input_name=module.input_name)
    except Exception as error:
        raise RunFailedError(
            f"The model cannot be exported to {FILE_OF[name]}: {describe_failure(error)}"
        ) from error


def _exported(module: ExportModule) -> torch.export.ExportedProgram:
    sizes = {0: torch.export.Dim("batch")}
    size = None
    if module.takes_any_size:
        height, width = module.input_shape[:2]
        size = (2 * height + _LARGER_BY[0], 2 * width + _LARGER_BY[1])
        sizes |= {1: torch.export.Dim("height", min=1), 2: torch.export.Dim("width", min=1)}
    example = module.example(_EXAMPLE_BATCH, size=size)
    with torch.no_grad():
        # A first call outside of the export: constants that are computed lazily must become real tensors.
        module(module.example(_EXAMPLE_BATCH))
        return torch.export.export(module, (example,), dynamic_shapes=(sizes,))


def _write_pt2(program: torch.export.ExportedProgram, path: Path) -> Runner:
    torch.export.save(program, path)
    run: Runner = torch.export.load(path).module()
    return run


def _write_onnx(program: torch.export.ExportedProgram, path: Path, *, input_name: str) -> Runner:
    torch.onnx.export(
        program,
        (),
        str(path),
        input_names=[input_name],
        output_names=["output"],
        dynamo=True,
        external_data=False,
        verbose=False,
    )
    # Imported by name: type checks must also pass where this optional package is not installed.
    onnxruntime = importlib.import_module("onnxruntime")
    session: Any = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])

    def run(images: Tensor) -> Tensor:
        return torch.from_numpy(session.run(None, {input_name: images.numpy()})[0])

    return run


@contextmanager
def _quietly() -> Iterator[None]:
    """Silences the warnings and logs of the exporters, which concern their own internals."""
    former = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        logging.disable(former)
