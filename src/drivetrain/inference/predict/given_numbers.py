"""Reads what is predicted other than image files: arrays of samples, and files of tables and signals."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.input_kinds import describe_input, plural_of
from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import shown
from drivetrain.data.source import DataSpec, require_finite
from drivetrain.data.sources.given_samples import read_samples

__all__ = ["GivenSamples", "read_array", "read_files"]

_DELIMITERS = ",;\t"


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenSamples:
    """Samples as a source gives them, and the file that they come from."""

    values: NDArray[Any]
    file: Path | None = None


def read_array(values: Any, *, spec: DataSpec, name: str = "inputs") -> NDArray[Any]:
    """An array, tensor or data frame as samples (samples, height, width, channels) of a run."""
    if spec.has_dense_labels:
        raise BadInputError(
            "drivetrain.predict takes arrays for classification; give image files for a segmentation run."
        )
    try:
        samples, _ = read_samples(values, choice=spec.input_kind)
        require_finite(samples, kind=spec.input_kind)
    except BadInputError as error:
        raise BadInputError(f"{name}: {error}") from error
    _require_form(samples, spec=spec, name=name)
    return samples


def _require_form(samples: NDArray[Any], *, spec: DataSpec, name: str) -> None:
    if len(samples) == 0:
        raise BadInputError(f"{name} has no {plural_of(spec.input_kind)}; give at least one.")
    height, width, channels = samples.shape[1:]
    given = describe_input(spec.input_kind, channels=channels, height=height, width=width)
    if given != spec.input_words:
        raise BadInputError(
            f"{name} has {given}, but RUN was trained on {spec.input_words}; give such "
            f"{plural_of(spec.input_kind)}."
        )
    if samples.dtype != spec.image_dtype:
        raise BadInputError(
            f"{name} is {samples.dtype}, but RUN was trained on {spec.image_dtype}; give the same type, in "
            "the same range."
        )


def read_files(files: Sequence[Path], *, spec: DataSpec) -> list[GivenSamples]:
    """The samples of .csv and .npy files, for a run on a table or on signals."""
    return [
        GivenSamples(values=read_array(_content(path, spec=spec), spec=spec, name=f"INPUT {path}"), file=path)
        for path in files
    ]


def _content(path: Path, *, spec: DataSpec) -> NDArray[Any]:
    if path.suffix.lower() == ".npy":
        return _npy(path)
    if path.suffix.lower() in (".csv", ".tsv"):
        return _csv(path)
    raise BadInputError(
        f"INPUT {path} is neither a .csv nor a .npy file, but RUN was trained on {spec.input_words}; give "
        "files with such numbers."
    )


def _npy(path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        raise BadInputError(
            f"INPUT {path} cannot be read ({error}); write it again with numpy.save, as an array of numbers."
        ) from error
    return array


def _csv(path: Path) -> NDArray[np.float64]:
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise BadInputError(f"INPUT {path} cannot be read ({error}); give a CSV file in UTF-8.") from error
    lines = text.splitlines()
    delimiter = max(_DELIMITERS, key=lines[0].count) if lines else ","
    cells = [(line, row) for line, row in enumerate(csv.reader(lines, delimiter=delimiter), start=1) if row]
    if cells and not all(map(_is_number, cells[0][1])):
        cells = cells[1:]
    if not cells:
        raise BadInputError(f"INPUT {path} has no rows of numbers; give at least one.")
    return np.array(list(_numbers(cells, path=path)), dtype=np.float64)


def _numbers(cells: list[tuple[int, list[str]]], *, path: Path) -> Iterator[list[float]]:
    columns = len(cells[0][1])
    for line, row in cells:
        if len(row) != columns:
            raise BadInputError(
                f"INPUT {path} has {len(row)} columns in line {line}, but {columns} in line {cells[0][0]}; "
                "give every row the same columns."
            )
        wrong = next((column for column, cell in enumerate(row) if not _is_number(cell)), None)
        if wrong is not None:
            raise BadInputError(
                f"INPUT {path} has {shown(row[wrong])} in line {line}, column {wrong}, which is not a "
                "number; correct it, or leave the row out."
            )
        yield list(map(float, row))


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
