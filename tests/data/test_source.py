"""Sources, their subsets and their description."""

import json
import pickle

import numpy as np
import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSpec, Source, SubsetSource, index_chunks, require_labels
from tests.data.helpers import float_source, small_source


def test_spec_survives_json() -> None:
    _, spec = float_source()
    assert DataSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert spec.image_bytes == 4 * 4 * 2 * 4


def test_more_classes_are_called_by_their_number() -> None:
    _, spec = float_source()
    assert spec.with_num_classes(4).class_names == ("a", "b", "2", "3")


def test_subset_fetches_through_its_indices() -> None:
    source = small_source()
    subset = SubsetSource(source, np.array([9, 4, 7]))
    images, labels = subset.fetch(np.array([2, 0]))
    expected_images, expected_labels = source.fetch(np.array([7, 9]))
    assert len(subset) == 3
    assert np.array_equal(images, expected_images)
    assert np.array_equal(labels, expected_labels)


def test_sources_fulfil_the_protocol_and_survive_pickling() -> None:
    arrays, _ = float_source()
    sources: list[Source] = [arrays, small_source(), SubsetSource(small_source(), np.arange(4))]
    for source in sources:
        assert isinstance(source, Source)
        again = pickle.loads(pickle.dumps(source))
        assert np.array_equal(again.fetch(np.array([1, 3]))[0], source.fetch(np.array([1, 3]))[0])


def test_index_chunks_cover_everything_once() -> None:
    chunks = list(index_chunks(10, sample_bytes=5 * 2**20))
    assert [len(chunk) for chunk in chunks] == [3, 3, 3, 1]
    assert np.array_equal(np.concatenate(chunks), np.arange(10))


@pytest.mark.parametrize("label", [-1, 10])
def test_labels_out_of_range_are_refused(label: int) -> None:
    with pytest.raises(BadInputError, match=rf"label {label}.*--num-classes"):
        require_labels(np.array([0, label, 9]), num_classes=10)
