"""Resident data over a source's own arrays: nothing is copied, and nothing is different."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from drivetrain.core.errors import BadInputError
from drivetrain.data.feeds.evaluation_feed import EvaluationFeed
from drivetrain.data.feeds.resident import ResidentFeed
from drivetrain.data.feeds.resident_data import ResidentData, held_samples
from drivetrain.data.masks.masked_images import HeldMaskedImages
from drivetrain.data.preprocess import Preprocess
from drivetrain.data.source import ArraySource, Source, SubsetSource
from drivetrain.data.training_tiles import UniformSource
from tests.data.helpers import CPU, collect, make_order, same_batches, small_source, spec_of_small

_SPEC = spec_of_small(small_source())


class _Opaque:
    """The same samples, from a source that nobody can look into."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def __len__(self) -> int:
        return len(self._source)

    def fetch(self, indices: NDArray[np.int64]) -> tuple[NDArray[Any], NDArray[Any]]:
        return self._source.fetch(indices)


def _held() -> ArraySource:
    images, labels = small_source().fetch(np.arange(50))
    return ArraySource(images=images, labels=labels)


def _subset() -> SubsetSource:
    return SubsetSource(SubsetSource(_held(), np.arange(49, -1, -1)), np.arange(3, 45, 2))


def test_a_subset_is_fed_from_the_whole_as_from_a_copy() -> None:
    order = make_order(samples=len(_subset()), global_batch=4)
    preprocess = Preprocess(_SPEC)

    def fed(source: Source) -> list[Any]:
        feed = ResidentFeed(source, order=order, preprocess=preprocess, micro_batch_size=2, device=CPU)
        return collect(feed, range(7))

    assert same_batches(fed(_subset()), fed(_Opaque(_subset())))


def test_a_subset_is_measured_from_the_whole_as_from_a_copy() -> None:
    preprocess = Preprocess(_SPEC)

    def batches(source: Source) -> list[Any]:
        return list(EvaluationFeed(source, preprocess=preprocess, batch_size=4, device=CPU, resident=True))

    assert same_batches(batches(_subset()), batches(_Opaque(_subset())))


def test_nothing_is_copied() -> None:
    source = _held()
    data = ResidentData(source, preprocess=Preprocess(_SPEC), device=CPU)
    pixels, labels = data.span(0, len(source))
    assert np.shares_memory(pixels.numpy(), source.images)
    assert np.shares_memory(labels.numpy(), source.labels)


def test_whole_masked_images_are_taken_where_they_lie() -> None:
    source = _held()
    masks = np.zeros((*source.images.shape[:3], 1), dtype=np.uint8)
    names = tuple(map(str, range(len(source))))
    held = UniformSource(HeldMaskedImages(images=source.images, masks=masks, names=names))
    found = held_samples(held, spec=_SPEC)
    assert found is not None
    assert found.labels is masks
    marked = UniformSource(held.masked, bad=np.array([2]))
    assert held_samples(marked, spec=_SPEC) is None


@pytest.mark.parametrize("how", ["other order", "read only", "other type"])
def test_arrays_that_no_tensor_can_lie_over_are_copied(how: str) -> None:
    source = _held()
    images = source.images
    if how == "other order":
        images = np.asfortranarray(images)
    elif how == "other type":
        images = images.astype(np.float64)
    else:
        images = images.copy()
        images.flags.writeable = False
    assert held_samples(source, spec=_SPEC) is not None
    assert held_samples(ArraySource(images=images, labels=source.labels), spec=_SPEC) is None


def test_only_the_labels_of_the_subset_must_be_classes() -> None:
    source = _held()
    labels = source.labels.copy()
    labels[7] = 1000
    wrong = ArraySource(images=source.images, labels=labels)
    preprocess = Preprocess(_SPEC)
    ResidentData(SubsetSource(wrong, np.arange(7)), preprocess=preprocess, device=CPU)
    with pytest.raises(BadInputError, match="label 1000"):
        ResidentData(SubsetSource(wrong, np.arange(8)), preprocess=preprocess, device=CPU)
