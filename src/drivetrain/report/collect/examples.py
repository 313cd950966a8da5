"""The validation pictures of a run: behind the confusion matrix, the worst samples, images with masks."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from drivetrain.core.files import read_json
from drivetrain.report.collect.budget import PictureBudget
from drivetrain.report.collect.stored_run import StoredRun
from drivetrain.report.contents import Example, MaskExample
from drivetrain.store.examples import EXAMPLES_RECORD

__all__ = ["Pictures", "pictures_of"]

# Names of pictures come from a file, so they must not lead out of its folder.
_SAFE_NAME = re.compile(r"[0-9A-Za-z_-]+\.(png|jpg)")


@dataclass(slots=True, kw_only=True)
class Pictures:
    """What a run left in examples/; `cells` are named "row,column"."""

    cells: dict[str, list[Example]] = field(default_factory=dict)
    worst: list[Example] = field(default_factory=list)
    masks: list[MaskExample] = field(default_factory=list)


def pictures_of(run: StoredRun, *, budget: PictureBudget) -> Pictures:
    """The pictures that fit; empty for a run without."""
    folder = run.directory.examples
    if not (folder / EXAMPLES_RECORD).is_file():
        return Pictures()
    record = read_json(folder / EXAMPLES_RECORD)
    samples = _Samples(record.get("samples", []), folder=folder, names=run.class_names, budget=budget)
    worst = [sample for index in record.get("worst", []) if (sample := samples.get(index)) is not None]
    cells = {
        str(cell): [sample for index in indices if (sample := samples.get(index)) is not None]
        for cell, indices in _mistakes_first(record.get("cells", {}))
    }
    masks = list(_masks(record.get("masks", []), folder=folder, budget=budget))
    return Pictures(cells={cell: own for cell, own in cells.items() if own}, worst=worst, masks=masks)


class _Samples:
    """The samples of a classifier; each picture is read once, when it is asked for."""

    def __init__(
        self, stored: list[dict[str, Any]], *, folder: Path, names: list[str], budget: PictureBudget
    ) -> None:
        self._stored, self._folder, self._names, self._budget = stored, folder, names, budget
        self._known: dict[int, Example | None] = {}

    def get(self, index: int) -> Example | None:
        if index not in self._known:
            self._known[index] = self._read(self._stored[index])
        return self._known[index]

    def _read(self, stored: dict[str, Any]) -> Example | None:
        found = self._budget.take([_inside(self._folder, stored["file"])])
        if found is None:
            return None
        sample = Example(
            name=str(stored["name"]),
            image=found[0],
            truth=self._class(stored["truth"]),
            predicted=self._class(stored["predicted"]),
        )
        if "loss" in stored:
            sample["loss"] = float(stored["loss"])
        return sample

    def _class(self, index: int) -> str:
        return self._names[index] if 0 <= index < len(self._names) else str(index)


def _masks(stored: list[dict[str, Any]], *, folder: Path, budget: PictureBudget) -> Iterator[MaskExample]:
    for each in stored:
        found = budget.take([_inside(folder, each[what]) for what in ("image", "truth", "predicted")])
        if found is not None:
            scores = {str(name): float(value) for name, value in each["scores"].items()}
            image, truth, predicted = found
            yield MaskExample(
                name=str(each["name"]), image=image, truth=truth, predicted=predicted, scores=scores
            )


def _inside(folder: Path, name: str) -> Path:
    if not _SAFE_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not the name of an example picture")
    return folder / name


def _mistakes_first(cells: dict[str, list[int]]) -> list[tuple[str, list[int]]]:
    """The cells off the diagonal before those on it, so that they are kept where bytes are few."""
    return sorted(cells.items(), key=lambda item: len(set(item[0].split(","))) == 1)
