"""`--dataset synthetic-em`: generated electron micrographs of nerve tissue, with the membranes as mask."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.data_sets import dataset_info, generated_validation_samples
from drivetrain.core.errors import BadInputError
from drivetrain.core.randomness import stream_key
from drivetrain.data.masks.masked_images import MaskedSplits
from drivetrain.data.source import DataSpec
from drivetrain.data.sources.synthetic_cells import (
    Cells,
    Picture,
    draw_numbers,
    lay_out_cells,
    smooth_noise,
    white_noise,
)

__all__ = ["SyntheticMicrographs", "open_synthetic_em", "paint_cells"]

_CYTOPLASM = 160.0
_CELL_SHADES = 14.0
# (grain in pixels, contrast in grey levels): slow shading as of an uneven slice, then the finer textures.
_SHADING_GRAIN, _SHADING = 50.0, 9.0
_TEXTURES = ((6.0, 6.0), (2.0, 13.0))
_MEMBRANE_DEPTH, _MEMBRANE_DEPTH_VARIATION, _DEPTH_GRAIN = 92.0, 22.0, 14.0
_FAINTEST = 30.0
_NOISE_BEFORE_BLUR, _NOISE_AFTER_BLUR = 18.0, 13.0
_PIXELS_PER_VESICLE = 40
_VESICLE_DEPTH = 120.0
_VESICLE = np.array([[0.4, 1.0, 0.4], [1.0, 0.3, 1.0], [0.4, 1.0, 0.4]], dtype=np.float32)
_PIXELS_PER_MITOCHONDRION = 6000
_PLACES_TRIED = 20
# Half axes as fractions of the distance to the membrane, then their limit in pixels.
_THINNEST, _FATTEST, _LONGEST_AXIS = 0.5, 0.9, 15.0
_MITOCHONDRION_DEPTH, _CRISTAE_DEPTH, _CRISTAE_PERIOD, _SKIN_DEPTH = 58.0, 28.0, 4.0, 36.0
_MASK_VALUES = ((0,), (255,))
_SMALLEST_SIZE = 16


def paint_cells(cells: Cells, *, seed: int) -> Picture:
    """Paints the grey values (0 to 255) of a micrograph with these cells."""
    # As in a microscope, noise of the slice is blurred and noise of the camera is not: the order matters.
    size = len(cells.distance)
    picture = _cytoplasm(cells, seed=seed)
    picture -= _vesicles(cells, seed=seed)
    picture -= _mitochondria(cells, seed=seed)
    picture -= _membranes(cells, seed=seed)
    picture += _NOISE_BEFORE_BLUR * white_noise(stream_key(seed, "noise of the slice"), size=size)
    picture = _blurred(picture)
    picture += _NOISE_AFTER_BLUR * white_noise(stream_key(seed, "noise of the camera"), size=size)
    return np.clip(picture, 0, 255)


def _cytoplasm(cells: Cells, *, seed: int) -> Picture:
    size = len(cells.distance)
    shades = draw_numbers(stream_key(seed, "cell shades"), count=int(cells.cell.max()) + 1) - np.float32(0.5)
    picture: Picture = _CYTOPLASM + _CELL_SHADES * 2 * shades[cells.cell]
    for grain, contrast in ((_SHADING_GRAIN, _SHADING), *_TEXTURES):
        key = stream_key(seed, "texture", str(grain))
        picture += contrast * smooth_noise(key, size=size, grain=grain)
    return picture


def _membranes(cells: Cells, *, seed: int) -> Picture:
    """The membranes' darkness: strongest on the border of two cells, fading just outside the membrane."""
    variation = smooth_noise(stream_key(seed, "membrane depth"), size=len(cells.distance), grain=_DEPTH_GRAIN)
    depth = np.maximum(_MEMBRANE_DEPTH + _MEMBRANE_DEPTH_VARIATION * variation, _FAINTEST)
    stain: Picture = depth * np.exp(-((cells.distance / (cells.half_width * np.float32(1.1))) ** 2))
    return stain


def _vesicles(cells: Cells, *, seed: int) -> Picture:
    """The vesicles' darkness: small rings, only inside cells."""
    size, reach = len(cells.distance), len(_VESICLE) // 2
    count = size * size // _PIXELS_PER_VESICLE
    draws = draw_numbers(stream_key(seed, "vesicles"), count=3 * count).reshape(3, count)
    rows, columns = (draws[:2] * size).astype(np.int64)
    is_inside = cells.distance[rows, columns] > cells.half_width[rows, columns] + reach
    rows, columns, depth = rows[is_inside], columns[is_inside], draws[2][is_inside]
    padded = np.zeros((size + 2 * reach, size + 2 * reach), dtype=np.float32)
    steps = np.arange(len(_VESICLE))
    down, right = rows[:, None, None] + steps[:, None], columns[:, None, None] + steps
    stamps = _VESICLE_DEPTH * depth[:, None, None] * _VESICLE
    np.maximum.at(padded, (down, right), stamps)
    return padded[reach : reach + size, reach : reach + size]


def _mitochondria(cells: Cells, *, seed: int) -> Picture:
    """Striped dark bodies with a darker skin, each at the roomiest of some random places."""
    size = len(cells.distance)
    count = max(1, size * size // _PIXELS_PER_MITOCHONDRION)
    places = (draw_numbers(stream_key(seed, "places tried"), count=2 * count * _PLACES_TRIED) * size).astype(
        int
    )
    rows, columns = places.reshape(2, count, _PLACES_TRIED)
    shapes = draw_numbers(stream_key(seed, "mitochondria"), count=3 * count).reshape(count, 3)
    best = cells.distance[rows, columns].argmax(axis=1)[:, np.newaxis]
    centres = np.concatenate([np.take_along_axis(each, best, axis=1) for each in (rows, columns)], axis=1)
    picture = np.zeros((size, size), dtype=np.float32)
    for (row, column), shape in zip(centres.tolist(), shapes.tolist(), strict=True):
        body = _mitochondrion(
            size, centre=(row, column), room=float(cells.distance[row, column]), shape=shape
        )
        np.maximum(picture, np.where(cells.is_membrane, 0, body), out=picture)
    return picture


def _mitochondrion(size: int, *, centre: tuple[int, int], room: float, shape: list[float]) -> Picture:
    across = np.arange(size, dtype=np.float32)
    down, right = across[:, None] - centre[0], across[None] - centre[1]
    angle = np.float32(np.pi * shape[0])
    along, aside = down * np.cos(angle) + right * np.sin(angle), right * np.cos(angle) - down * np.sin(angle)
    shares = (_THINNEST + (_FATTEST - _THINNEST) * draw for draw in shape[1:])
    axes = [np.float32(max(1.0, min(share * room, _LONGEST_AXIS))) for share in shares]
    radius = np.hypot(along / axes[0], aside / axes[1])
    stripes = _CRISTAE_DEPTH * np.sin(along * np.float32(2 * np.pi / _CRISTAE_PERIOD))
    skin = _SKIN_DEPTH * np.exp(-(((radius - 1) * min(axes)) ** 2))
    return np.where(radius < 1.1, np.where(radius < 1, _MITOCHONDRION_DEPTH + stripes, 0) + skin, 0)


def _blurred(picture: Picture) -> Picture:
    """Blurs with the weights 1/4, 1/2, 1/4 along both axes."""
    padded = np.pad(picture, 1, mode="edge")
    down = (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4
    return np.asarray((down[:, :-2] + 2 * down[:, 1:-1] + down[:, 2:]) / 4, dtype=np.float32)


@dataclass(frozen=True, slots=True, kw_only=True)
class SyntheticMicrographs:
    """Generates image i from (seed, split, i, image size) alone; class 0 is membrane, class 1 is cell."""

    seed: int
    split: str
    samples: int
    image_size: int

    def __len__(self) -> int:
        return self.samples

    def name(self, index: int) -> str:
        """The image's name in messages."""
        return f"synthetic-em {self.split} {index}"

    def size(self, index: int) -> tuple[int, int]:
        """Height and width, the same for all."""
        self._require(index)
        return self.image_size, self.image_size

    def whole(self, index: int) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """Generates the image and its mask."""
        self._require(index)
        key = stream_key(self.seed, "synthetic-em", self.split, index)
        cells = lay_out_cells(key, size=self.image_size)
        image = np.rint(paint_cells(cells, seed=key)).astype(np.uint8)
        mask = (~cells.is_membrane).astype(np.uint8)
        return image[..., np.newaxis], mask[..., np.newaxis]

    def _require(self, index: int) -> None:
        if not 0 <= index < self.samples:
            raise IndexError(index)


def open_synthetic_em(
    *,
    seed: int,
    dataset_size: int | None = None,
    image_size: int | None = None,
    channels: int | None = None,
    num_classes: int | None = None,
) -> MaskedSplits:
    """The generated micrographs in the number and size a recipe asks for."""
    info = dataset_info("synthetic-em")
    size = image_size or info.height
    _require_shape(size=size, channels=channels, num_classes=num_classes)
    train = dataset_size or info.train_samples
    counts = {"train": train, "validation": generated_validation_samples(train)}
    sources = {
        split: SyntheticMicrographs(seed=seed, split=split, samples=samples, image_size=size)
        for split, samples in counts.items()
    }
    spec = DataSpec(
        channels=info.channels,
        height=size,
        width=size,
        num_classes=info.num_classes,
        class_names=info.class_names,
        image_dtype="uint8",
        normalisation="symmetric",
        task="segmentation",
        mask_values=_MASK_VALUES,
    )
    return MaskedSplits(train=sources["train"], validation=sources["validation"], test=None, spec=spec)


def _require_shape(*, size: int, channels: int | None, num_classes: int | None) -> None:
    info = dataset_info("synthetic-em")
    if size < _SMALLEST_SIZE:
        raise BadInputError(
            f"--image-size {size} is too small for the cells of --dataset synthetic-em; "
            f"--image-size {info.height} works."
        )
    for option, asked, there in (
        ("--channels", channels, info.channels),
        ("--num-classes", num_classes, info.num_classes),
    ):
        if asked is not None and asked != there:
            raise BadInputError(
                f"{option} {asked} does not match --dataset synthetic-em, which has {there}; leave it out or "
                f"use {option} {there}."
            )
