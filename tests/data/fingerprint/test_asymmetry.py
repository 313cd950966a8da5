"""Whether images mean the same when they are mirrored: noise does, digits and scenes with a sky do not."""

import numpy as np
import pytest

from drivetrain.data.fingerprint.asymmetry import AsymmetryMeter, coarse_view
from drivetrain.data.fingerprint.fingerprint import Asymmetry

RANDOM = np.random.default_rng(0)


def _asymmetry(images: list[np.ndarray], *, labels: list[int] | None = None) -> Asymmetry | None:
    meter = AsymmetryMeter()
    for index, image in enumerate(images):
        meter.add(image, label=0 if labels is None else labels[index], name=f"{index}.png")
    return meter.result()


def _noise(count: int = 60) -> list[np.ndarray]:
    return [RANDOM.integers(0, 256, (20, 24, 3)).astype(np.uint8) for _ in range(count)]


def test_noise_has_no_sides() -> None:
    found = _asymmetry(_noise())
    assert found is not None
    assert max(found.left_right, found.up_down, found.quarter_turn) < 0.15


@pytest.mark.parametrize(("classes", "of_each"), [(1, 13), (100, 10), (200, 5), (10, 5), (12, 2)])
def test_small_classes_of_noise_have_no_sides(classes: int, of_each: int) -> None:
    random = np.random.default_rng(1)
    images = [random.integers(0, 256, (8, 8, 1)).astype(np.uint8) for _ in range(classes * of_each)]
    found = _asymmetry(images, labels=[index % classes for index in range(len(images))])
    assert found is not None
    assert max(found.left_right, found.up_down, found.quarter_turn) < 0.15


@pytest.mark.parametrize(("classes", "of_each"), [(1, 13), (20, 5), (12, 2)])
def test_a_top_is_found_in_few_noisy_images(classes: int, of_each: int) -> None:
    random, slope = np.random.default_rng(1), np.linspace(-1, 1, 8)[:, np.newaxis, np.newaxis]
    images = [128 + 30 * (slope + random.standard_normal((8, 8, 1))) for _ in range(classes * of_each)]
    found = _asymmetry(images, labels=[index % classes for index in range(len(images))])
    assert found is not None
    assert found.left_right < 0.15
    assert found.up_down > 0.5
    assert found.quarter_turn > 0.3


def test_a_bright_sky_is_up() -> None:
    images = _noise()
    for image in images:
        image[:10] //= 2
        image[:10] += 127
    found = _asymmetry(images)
    assert found is not None
    assert found.left_right < 0.15
    assert found.up_down > 1.0
    assert found.quarter_turn > 1.0


def test_each_class_is_compared_with_itself() -> None:
    """Left and right halves that are bright cancel out over all images, but not within their classes."""
    images = _noise()
    for index, image in enumerate(images):
        half = slice(0, 12) if index % 2 else slice(12, 24)
        image[:, half] //= 4
    together, apart = _asymmetry(images), _asymmetry(images, labels=[index % 2 for index in range(60)])
    assert together is not None
    assert apart is not None
    assert together.left_right < 0.3
    assert apart.left_right > 1.0


def test_too_few_images_tell_nothing() -> None:
    assert _asymmetry(_noise(2)) is None
    assert _asymmetry(_noise(12)) is None
    assert _asymmetry(_noise(13)) is not None
    assert _asymmetry(_noise(20), labels=[*range(10)] * 2) is None
    assert _asymmetry(_noise(40), labels=[*range(40)]) is None


def test_pages_of_one_file_count_once() -> None:
    meter = AsymmetryMeter()
    for page, image in enumerate(_noise(30)):
        meter.add(image, label=0, name=f"volume.tif page {page + 1}")
    assert meter.result() is None


@pytest.mark.parametrize("shape", [(8, 8, 1), (3, 5, 3), (100, 17, 3), (1, 1, 1)])
def test_views_have_one_size(shape: tuple[int, int, int]) -> None:
    assert coarse_view(np.full(shape, 7, dtype=np.uint8)).tolist() == [[7.0] * 8] * 8
