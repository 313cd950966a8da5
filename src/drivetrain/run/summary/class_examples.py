"""Pictures of classified validation samples: those behind the confusion matrix, and those of largest loss."""

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from drivetrain.data.sample_names import image_file
from drivetrain.data.source import DataSplits, Source
from drivetrain.pictures.encode import encode_small, small_picture
from drivetrain.store.directory import RunDirectory
from drivetrain.store.examples import ShownSample, write_sample_examples
from drivetrain.tasks.classification_measure import Guesses

__all__ = ["choose_cells", "choose_worst", "write_class_examples"]

Cell = tuple[int, int]
_MOST_IN_A_CELL = 4
_MOST_IN_CELLS = 132
_MOST_WORST = 18
_SIDES = (64, 96)
# Pages hold all pictures and may have 3 MB; base64 makes them a third larger.
_MOST_BYTES = 900_000


def write_class_examples(
    directory: RunDirectory, *, data: DataSplits, candidates: NDArray[np.int64], guesses: Guesses
) -> None:
    """Writes examples/; `candidates` are the validation samples that were guessed."""
    assert data.validation is not None
    cells, worst = choose_cells(guesses), choose_worst(guesses)
    wanted = list(dict.fromkeys([*worst, *(place for own in cells.values() for place in own)]))
    pictures = _pictures(data.validation, candidates[wanted])
    shown = {place: index for index, place in enumerate(wanted[: len(pictures)])}
    samples = [
        _sample(guesses, place, name=_name_of(data.validation, int(candidates[place])), file=file)
        for place, file in zip(wanted, pictures, strict=False)
    ]
    write_sample_examples(
        directory.examples,
        samples=samples,
        cells={f"{row},{column}": _kept(own, shown) for (row, column), own in cells.items()},
        worst=_kept(worst, shown),
        pictures=pictures,
    )


def choose_cells(guesses: Guesses) -> dict[Cell, list[int]]:
    """A few samples of each cell of the confusion matrix, of the largest losses; mistakes come first."""
    cells: dict[Cell, list[int]] = defaultdict(list)
    for place in _by_loss(guesses):
        cells[int(guesses.labels[place]), int(guesses.classes[place])].append(int(place))
    largest = sorted(cells, key=lambda cell: -len(cells[cell]))
    in_turns = (
        (cell, cells[cell][turn])
        for is_right in (False, True)
        for turn in range(_MOST_IN_A_CELL)
        for cell in largest
        if (cell[0] == cell[1]) == is_right and turn < len(cells[cell])
    )
    chosen: dict[Cell, list[int]] = defaultdict(list)
    for cell, place in islice(in_turns, _MOST_IN_CELLS):
        chosen[cell].append(place)
    return chosen


def choose_worst(guesses: Guesses) -> list[int]:
    """The samples of the largest loss, the largest first."""
    return [int(place) for place in _by_loss(guesses)[:_MOST_WORST]]


def _by_loss(guesses: Guesses) -> NDArray[np.int64]:
    losses = np.where(np.isfinite(guesses.losses), guesses.losses, np.inf)
    return np.argsort(-losses, kind="stable")


def _kept(places: Sequence[int], shown: dict[int, int]) -> list[int]:
    return [shown[place] for place in places if place in shown]


def _pictures(source: Source, indices: NDArray[np.int64]) -> dict[str, bytes]:
    """The files of samples in order; the last ones are left out where they would be too many bytes."""
    pictures: dict[str, bytes] = {}
    left = _MOST_BYTES
    for number, image in enumerate(source.fetch(indices)[0]):
        ending, content = encode_small(small_picture(image, sides=_SIDES))
        left -= len(content)
        if left < 0:
            break
        pictures[f"{number:03}{ending}"] = content
    return pictures


def _name_of(source: Source, index: int) -> str:
    return image_file(source, index) or f"validation sample {index}"


def _sample(guesses: Guesses, place: int, *, name: str, file: str) -> ShownSample:
    sample = ShownSample(
        name=name,
        file=file,
        truth=int(guesses.labels[place]),
        predicted=int(guesses.classes[place]),
    )
    loss = float(guesses.losses[place])
    if np.isfinite(loss):
        sample["loss"] = round(loss, 6)
    return sample
