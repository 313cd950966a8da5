"""The picture of a data set: which samples it shows, and that it can be drawn for every kind of data."""

from dataclasses import replace
from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from drivetrain.data.fingerprint.fingerprint import Fingerprint
from drivetrain.data.fingerprint.looked_at import LookedAt
from drivetrain.data.fingerprint.measure import Measured
from drivetrain.pictures.data_picture import PictureSamples, data_picture
from tests.auto.fingerprints import KINDS

RANDOM = np.random.default_rng(0)


def _looked(index: int, *, label: int | None = None, channels: int = 3, classes: int = 0) -> LookedAt:
    height, width = 20 + index % 3, 24
    mask = RANDOM.integers(0, classes, (height, width)).astype(np.uint8) if classes else None
    pixels = RANDOM.integers(0, 256, (height, width, channels)).astype(np.uint8)
    return LookedAt(
        index=index, name=f"{index}.png", pixels=pixels, size_px=(height, width), label=label, mask=mask
    )


def _measured(found: Fingerprint, samples: list[LookedAt], *, diameters: tuple[float, ...] = ()) -> Measured:
    return Measured(
        fingerprint=found,
        samples=samples,
        brightness=[0.1, 0.5, 0.2],
        sides_px=[(20.0, 24.0), (21.0, 24.0), (22.0, 24.0)],
        diameters_px=[*diameters],
    )


def test_eight_samples_of_each_of_the_first_classes_are_kept() -> None:
    chosen = PictureSamples()
    kept = [looked for n in range(300) if chosen.keeps(looked := _looked(n, label=n % 15))]
    assert [sum(looked.label == label for looked in kept) for label in range(15)] == [8] * 12 + [0] * 3


def test_eight_images_with_masks_are_kept() -> None:
    chosen = PictureSamples()
    assert sum(chosen.keeps(_looked(n, classes=2)) for n in range(30)) == 8


@pytest.mark.parametrize(
    "kind", ["photographs", "grey files in colour", "street scenes", "masks", "two masks"]
)
def test_every_kind_of_data_can_be_drawn(kind: str) -> None:
    found = KINDS[kind]
    classes = len(found.class_names) if found.pixel_shares else 0
    samples = [
        _looked(n, label=None if classes else n % 3, channels=found.channels, classes=classes)
        for n in range(6)
    ]
    measured = _measured(found, samples, diameters=(3.0, 5.0) if classes else ())
    image = Image.open(BytesIO(data_picture(measured, title=f"a folder of {kind}")))
    assert image.format == "PNG"
    assert image.width > 800


def test_long_names_many_classes_and_equal_sizes_fit() -> None:
    found = KINDS["photographs"]
    many = replace(
        found,
        class_names=tuple(f"a class with an overly long name, number {n}" for n in range(60)),
        class_counts=(3,) * 60,
    )
    measured = _measured(many, [_looked(n, label=n % 12) for n in range(96)])
    measured.sides_px[:] = [(20.0, 24.0)] * 3
    short = _measured(replace(many, class_names=tuple(map(str, range(60)))), measured.samples)
    widths = {Image.open(BytesIO(data_picture(one, title="word " * 100))).width for one in (measured, short)}
    assert len(widths) == 1


def test_a_data_set_without_kept_samples_can_be_drawn() -> None:
    assert data_picture(_measured(KINDS["photographs"], []), title="nothing to show")
