"""A recipe's normalisation in the description of the data, and what it computes."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from drivetrain.core.errors import BadInputError
from drivetrain.data.augment.chain import DenseAugmentation
from drivetrain.data.normalisation import normalised_as_asked, with_normalisation
from drivetrain.data.preprocess import DensePreprocess, Preprocess, normalise_dense
from drivetrain.data.source import ArraySource, DataSpec, DataSplits
from drivetrain.recipe.normalisation import ChannelValues
from drivetrain.recipe.schema import Recipe

VALUES = ChannelValues(mean=(0.5, 0.4, 0.3), std=(0.25, 0.2, 0.1))
OF_LIBRARY = VALUES.model_copy(update={"of": "timm/resnet18"})


def _spec(channels: int = 3, **changes: Any) -> DataSpec:
    spec = DataSpec(
        channels=channels, height=5, width=6, num_classes=2, class_names=("a", "b"), image_dtype="uint8"
    )
    return replace(spec, **changes)


def _images(channels: int = 3) -> torch.Tensor:
    pixels = np.random.default_rng(0).integers(0, 256, (4, 5, 6, channels), dtype=np.uint8)
    return torch.from_numpy(pixels).permute(0, 3, 1, 2)


def _splits(spec: DataSpec) -> DataSplits:
    source = ArraySource(images=np.zeros((2, 5, 6, spec.channels)), labels=np.zeros(2, dtype=np.int64))
    return DataSplits(train=source, validation=None, test=None, spec=spec)


def _expected(images: torch.Tensor, values: ChannelValues) -> torch.Tensor:
    mean, std = (torch.tensor(part, dtype=torch.float64)[:, None, None] for part in (values.mean, values.std))
    return (images.to(torch.float64) / 255 - mean) / std


@pytest.mark.parametrize("task", ["classification", "segmentation"])
def test_each_channel_has_its_mean_and_deviation(task: Any) -> None:
    spec = with_normalisation(_spec(task=task), Recipe(normalisation=VALUES))
    prepare = Preprocess(spec) if task == "classification" else DensePreprocess(spec)
    expected = _expected(_images(), VALUES)
    torch.testing.assert_close(prepare(_images()).to(torch.float64), expected, atol=2e-6, rtol=0)
    swapped = _expected(_images(), VALUES.model_copy(update={"mean": VALUES.mean[::-1]}))
    assert (prepare(_images()) - swapped).abs().max() > 0.1


def test_imagenet_is_the_same_as_its_numbers() -> None:
    numbers = ChannelValues(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    named, given = (
        Preprocess(with_normalisation(_spec(), Recipe(normalisation=value)))(_images())
        for value in ("imagenet", numbers)
    )
    assert torch.equal(named, given)


def test_symmetric_classification_is_from_minus_one_to_one() -> None:
    prepare = Preprocess(with_normalisation(_spec(), Recipe(normalisation="symmetric")))
    ends = torch.tensor([0, 255], dtype=torch.uint8)[:, None, None, None].expand(2, 3, 5, 6)
    assert prepare(ends)[:, 0, 0, 0].tolist() == [-1, 1]


@pytest.mark.parametrize("channels", [1, 2, 4])
def test_a_librarys_values_are_averaged_for_other_channels(channels: int) -> None:
    spec = with_normalisation(_spec(channels), Recipe(normalisation=OF_LIBRARY))
    assert spec.mean == pytest.approx((0.4,) * channels)
    assert spec.std == pytest.approx((0.55 / 3,) * channels)
    named = with_normalisation(_spec(channels), Recipe(normalisation="imagenet"))
    assert named.mean == pytest.approx((0.449,) * channels)


def test_your_own_values_must_fit_the_channels() -> None:
    with pytest.raises(BadInputError, match="--normalisation has 3 numbers in mean, and the images have 2"):
        with_normalisation(_spec(2), Recipe(normalisation=VALUES))
    one = with_normalisation(_spec(2), Recipe(normalisation=ChannelValues(mean=(0.5,), std=(0.1,))))
    assert (one.mean, one.std) == ((0.5, 0.5), (0.1, 0.1))


def test_parts_of_an_image_are_not_standardised() -> None:
    with pytest.raises(BadInputError, match=r"standardise is for classification.*symmetric works"):
        with_normalisation(_spec(task="segmentation"), Recipe(normalisation="standardise"))


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ("unit", "--normalisation unit has no effect"),
        (OF_LIBRARY, "that timm/resnet18 expects"),
        ("auto", None),
    ],
)
def test_floating_values_stay_and_a_warning_says_so(value: Any, sentence: str | None) -> None:
    splits = _splits(_spec(image_dtype="float32"))
    found = normalised_as_asked(splits, Recipe(normalisation=value))
    assert found.spec == splits.spec
    assert [sentence in warning for warning in found.warnings if sentence] == ([True] if sentence else [])
    assert len(found.warnings) == (sentence is not None)


def test_auto_leaves_the_data_sets_own() -> None:
    splits = _splits(_spec(normalisation="imagenet"))
    assert normalised_as_asked(splits, Recipe()).spec == splits.spec


def test_the_description_survives_a_file() -> None:
    spec = with_normalisation(_spec(), Recipe(normalisation=VALUES))
    assert DataSpec.from_json(spec.to_json()) == spec
    older = {key: value for key, value in _spec().to_json().items() if key not in ("mean", "std")}
    assert DataSpec.from_json(older) == _spec()


def test_whole_images_and_tiles_are_normalised_alike() -> None:
    spec = with_normalisation(_spec(task="segmentation"), Recipe(normalisation=VALUES))
    assert torch.equal(DensePreprocess(spec)(_images()), normalise_dense(_images(), spec))


def test_augmented_images_are_normalised_last() -> None:
    spec = with_normalisation(_spec(task="segmentation"), Recipe(normalisation=VALUES))
    labels = torch.zeros(4, 5, 6, 1, dtype=torch.uint8)
    images, _ = DenseAugmentation(seed=0, techniques=()).prepare(
        _images(), labels, preprocess=DensePreprocess(spec), draws=torch.zeros(4, 0)
    )
    assert torch.equal(images, DensePreprocess(spec)(_images()))


@pytest.mark.parametrize("normalisation", ["unit", "symmetric", "imagenet", "per-channel"])
def test_the_margin_of_a_canvas_is_0_once_normalised_as_in_a_prediction(normalisation: Any) -> None:
    values: dict[str, Any] = (
        {"mean": VALUES.mean, "std": VALUES.std} if normalisation == "per-channel" else {}
    )
    spec = _spec(normalisation=normalisation, task="segmentation", **values)
    inputs = DensePreprocess(spec, margin=2)(_images())
    around = torch.nn.functional.pad(normalise_dense(_images(), spec), (2, 2, 2, 2))
    assert torch.allclose(inputs, around, rtol=0, atol=1e-6)
    # A margin of 0 before the normalisation would be far off.
    assert normalisation == "symmetric" or not torch.allclose(inputs + 0.5, around, rtol=0, atol=0.1)
