"""The validation pictures of a run: behind the confusion matrix, the worst samples, images with masks."""

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from drivetrain.catalogue.metrics import shown_metric
from drivetrain.core.files import read_json
from drivetrain.report.collect.budget import PictureBudget
from drivetrain.report.collect.stored_run import StoredRun
from drivetrain.report.contents import Example, MaskExample
from drivetrain.store.examples import EXAMPLES_RECORD

__all__ = ["Pictures", "pictures_of", "pictures_of_folds"]

_MOST_WORST = 18
_ORDER_OF_MASKS = shown_metric("foreground_hard_dice")
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


def pictures_of_folds(folds: Sequence[tuple[int, StoredRun]], *, budget: PictureBudget) -> Pictures:
    """The pictures of all folds, each with the same share of the bytes, those of the worst scores first."""
    joined, share = Pictures(), budget.bytes_left // max(1, len(folds))
    for number, fold in folds:
        own = PictureBudget(bytes_left=share)
        found = fold.part("The pictures", partial(pictures_of, budget=own)) or Pictures()
        budget.left_out += own.left_out
        joined.worst += _named(found.worst, number)
        joined.masks += [mask | {"name": f"fold {number}: {mask['name']}"} for mask in found.masks]
        for cell, samples in found.cells.items():
            joined.cells.setdefault(cell, []).extend(_named(samples, number))
    joined.worst = sorted(joined.worst, key=lambda sample: -sample.get("loss", math.inf))[:_MOST_WORST]
    joined.masks.sort(key=lambda mask: mask["scores"].get(_ORDER_OF_MASKS, 1.0))
    return joined


def _named(samples: list[Example], fold: int) -> list[Example]:
    return [sample | {"name": f"fold {fold}: {sample['name']}"} for sample in samples]


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
