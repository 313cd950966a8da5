"""A user's own data."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import Dataset, IterableDataset, Subset, TensorDataset

from drivetrain.core.errors import BadInputError
from drivetrain.data.source import ArraySource, Source, SubsetSource
from drivetrain.data.sources.arrays import as_source, spec_of, splits_of
from drivetrain.data.sources.masked_arrays import masked_splits_of
from drivetrain.data.splits import open_data
from drivetrain.recipe.schema import Recipe
from tests.data.helpers import small_source

HWC = (np.arange(6 * 5 * 7 * 3) % 256).astype(np.uint8).reshape(6, 5, 7, 3)
LABELS = np.array([0, 1, 2, 3, 0, 1])
ALL = np.arange(6)
MODULE = """
import numpy as np
from drivetrain.data.sources.arrays import splits_of

def images(count, value=0):
    return np.full((count, 8, 8, 1), value, dtype=np.uint8), np.arange(count) % 3

def one(seed):
    return images(12, value=seed)

def pair(*, data_dir=None, **others):
    assert others["seed"] == 5
    return images(12), images(int(data_dir or 4))

def splits():
    return splits_of(images(12), images(6))

def nothing():
    return None
"""


class Samples(Dataset[Any]):
    """A data set of whatever images and labels it is given."""

    def __init__(self, images: Any, labels: Any = LABELS) -> None:
        self.images = images
        self.labels = labels

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> Any:
        return self.images[index], self.labels[index]


class Endless(IterableDataset[Any]):
    """Has samples, but no indices."""

    def __iter__(self) -> Iterator[Any]:
        return iter([(HWC[0], 0)])


def same_as_arrays(source: Source) -> bool:
    images, labels = source.fetch(ALL)
    return images.dtype == HWC.dtype and np.array_equal(images, HWC) and np.array_equal(labels, LABELS)


CHW_TENSOR = torch.from_numpy(HWC).permute(0, 3, 1, 2)


@pytest.mark.parametrize(
    "data",
    [
        (HWC, LABELS),
        [HWC, LABELS.tolist()],
        (HWC, LABELS.astype(np.uint8)),
        (CHW_TENSOR, torch.from_numpy(LABELS)),
        (CHW_TENSOR.contiguous(), LABELS),
        TensorDataset(CHW_TENSOR, torch.from_numpy(LABELS)),
        Samples(HWC),
        Samples(CHW_TENSOR, torch.from_numpy(LABELS)),
        Samples([Image.fromarray(image) for image in HWC], LABELS.tolist()),
        [(image, label) for image, label in zip(HWC, LABELS, strict=True)],
        Subset(Samples(HWC[::-1], LABELS[::-1]), [5, 4, 3, 2, 1, 0]),
        SubsetSource(ArraySource(images=HWC, labels=LABELS), ALL),
    ],
)
def test_every_form_gives_the_same_samples(data: Any) -> None:
    source = as_source(data)
    assert len(source) == 6
    assert same_as_arrays(source)
    spec = spec_of(source)
    assert (spec.channels, spec.height, spec.width, spec.num_classes) == (3, 5, 7, 4)
    assert (spec.class_names, spec.image_dtype) == (("0", "1", "2", "3"), "uint8")


def test_fetched_images_are_contiguous_even_from_a_permuted_tensor() -> None:
    images, _ = as_source((CHW_TENSOR.contiguous(), LABELS)).fetch(np.array([3, 1]))
    assert images.flags.c_contiguous


def test_images_without_channels_have_one() -> None:
    for data in ((HWC[..., 0], LABELS), (torch.from_numpy(HWC[..., 0]), LABELS), Samples(HWC[..., 0])):
        assert as_source(data).fetch(ALL)[0].shape == (6, 5, 7, 1)


@pytest.mark.parametrize("kind", [np.float16, np.float32, np.float64])
def test_floating_images_become_float32_unscaled(kind: type) -> None:
    values = HWC.astype(kind) / 2
    for data in ((values, LABELS), (torch.from_numpy(values).permute(0, 3, 1, 2), LABELS), Samples(values)):
        source = as_source(data)
        images, _ = source.fetch(ALL)
        assert images.dtype == np.float32
        assert np.array_equal(images, values.astype(np.float32))
        assert spec_of(source).image_dtype == "float32"


def test_bfloat16_tensors_are_read() -> None:
    images, _ = as_source((CHW_TENSOR.to(torch.bfloat16), LABELS)).fetch(ALL)
    assert images.dtype == np.float32


@pytest.mark.parametrize("mode", ["1", "P", "L"])
def test_pictures_with_palettes_and_bits_are_read_by_their_brightness(mode: str) -> None:
    grey = Image.fromarray(np.full((4, 4), 255, dtype=np.uint8))
    images, _ = as_source(Samples([grey.convert(mode)] * 2)).fetch(np.array([0, 1]))
    assert images.dtype == np.uint8
    assert (images == 255).all()


@pytest.mark.parametrize(
    ("data", "said"),
    [
        ((HWC, LABELS[:5]), "6 images but 5 labels"),
        ((HWC, LABELS.astype(np.float32)), "labels are float32.*whole numbers"),
        ((HWC, np.eye(6)), "argmax"),
        ((HWC, LABELS - 1), "Sample 0 has the label -1"),
        ((HWC[:0], LABELS[:0]), "no samples"),
        ((HWC.transpose(0, 3, 1, 2), LABELS), r"transpose\(0, 2, 3, 1\).*torch.from_numpy"),
        ((torch.from_numpy(HWC), LABELS), r"permute\(0, 3, 1, 2\)"),
        ((HWC.astype(np.int64), LABELS), "int64.*uint8"),
        ((CHW_TENSOR.to(torch.int32), LABELS), "int32.*uint8"),
        ((HWC[:, 0, 0, 0], LABELS), "shape"),
        ((torch.zeros(6), LABELS), "shape"),
        ((HWC[:, :, :0], LABELS), "has no pixels"),
        (Samples([]), "no samples"),
        (Samples([*HWC[:5], HWC[5, :4]]), "Sample 5 is an image of 4x7.*sample 0 is of 5x7"),
        (Samples(HWC, LABELS / 2), "Sample 0: The label .*not a whole number"),
        (Samples(HWC, [0, 0, -3, 0, 0, 0]), "Sample 2: The label -3"),
        (Samples(["a"] * 6), "Sample 0: A str is not an image"),
        (Samples(HWC.transpose(0, 3, 1, 2)), "Sample 0.*looks like"),
        ([{"image": 0}, {"image": 1}], "Sample 0 is a dict"),
        (Endless(), "IterableDataset"),
        (17, "int is not a data set"),
        ({"images": HWC}, "dict is not a data set"),
    ],
)
def test_what_cannot_be_used_is_said(data: Any, said: str) -> None:
    with pytest.raises(BadInputError, match=said):
        as_source(data).fetch(ALL)


def test_class_names_of_a_data_set_are_used() -> None:
    named = Samples(HWC)
    named.classes = ["ant", "bee", "cat", "dog", "elk"]  # type: ignore[attr-defined]
    assert spec_of(as_source(named)).class_names == ("ant", "bee", "cat", "dog", "elk")
    assert spec_of(as_source(Subset(named, [0, 1]))).num_classes == 5
    assert spec_of(as_source(named), num_classes=6).class_names[-1] == "5"


def test_targets_save_the_scan_unless_they_are_transformed() -> None:
    with_targets = Samples(HWC)
    with_targets.targets = torch.tensor([0, 6, 0, 0, 0, 0])  # type: ignore[attr-defined]
    assert spec_of(as_source(with_targets)).num_classes == 7
    with_targets.target_transform = int  # type: ignore[attr-defined]
    assert spec_of(as_source(with_targets)).num_classes == 4


def test_a_generated_source_is_scanned() -> None:
    assert spec_of(as_source(small_source())).num_classes == 10


def test_too_few_classes_are_refused() -> None:
    with pytest.raises(BadInputError, match="--num-classes 3 is less than the 4 classes"):
        spec_of(as_source((HWC, LABELS)), num_classes=3)


def test_validation_data_must_fit_the_training_data() -> None:
    with pytest.raises(BadInputError, match=r"5x6x3 uint8.*5x7x3 uint8"):
        splits_of((HWC, LABELS), (HWC[:, :, :6], LABELS))
    assert splits_of((HWC, LABELS), (HWC, LABELS + 3)).spec.num_classes == 7


@pytest.mark.parametrize(
    "labels",
    [LABELS[:, None], torch.from_numpy(LABELS)[:, None], LABELS.astype(object), list(LABELS)],
    ids=["column", "tensor", "object", "list"],
)
def test_labels_of_one_meaning_are_the_same(labels: Any) -> None:
    _, found = as_source((HWC, labels)).fetch(np.arange(len(LABELS)))
    assert np.array_equal(found, LABELS)


def test_truth_values_are_two_classes() -> None:
    assert spec_of(as_source((HWC, LABELS > 0))).num_classes == 2


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        ((HWC, LABELS.astype(np.float32)), r"The labels are float32; .* labels\.astype\('int64'\)"),
        (
            (HWC, LABELS.astype(str)),
            r"The labels are text; .* np\.unique\(labels, return_inverse=True\)\[1\]",
        ),
        ((HWC, np.eye(5)[LABELS]), r"the shape .* for one-hot labels, give labels\.argmax\(1\)"),
        ((HWC, LABELS, LABELS), r"a tuple of 3 \(ndarray, ndarray, ndarray\); give \(images, labels\)"),
        ((HWC, None), r"a tuple of 2 \(ndarray, NoneType\); give \(images, labels\)"),
        (torch.utils.data.DataLoader(Samples(HWC)), r"A DataLoader is not a data set; give its \.dataset"),
        ("folder", r"A str is not a data set; give --data-dir"),
    ],
)
def test_usual_mistakes_have_a_sentence(data: Any, sentence: str) -> None:
    with pytest.raises(BadInputError, match=sentence):
        as_source(data)


def test_floating_images_that_look_like_bytes_are_said() -> None:
    labels = np.zeros(4, dtype=np.int64)
    images = np.full((4, 6, 5, 3), 255.0)
    (warning,) = splits_of((images, labels)).warnings
    assert warning.startswith("The images are floating-point values up to 255 and are not rescaled; ")
    assert splits_of((images / 255, labels)).warnings == []
    assert splits_of((images.astype(np.uint8), labels)).warnings == []
    masks = np.zeros((4, 6, 5), dtype=np.uint8)
    masks[0, 0] = 1
    assert masked_splits_of((images, masks)).warnings == [warning]


def test_a_data_set_that_fails_names_the_sample() -> None:
    class Failing(list[Any]):
        def __getitem__(self, index: Any) -> Any:
            raise ZeroDivisionError("division by zero")

    with pytest.raises(
        BadInputError, match="The data set failed to return sample 0: ZeroDivisionError: division"
    ):
        as_source(Failing([1]))


def test_a_dictionary_of_a_data_set_is_named_by_its_keys() -> None:
    with pytest.raises(
        BadInputError, match=r"Sample 0 is a dict of image, label; it must be \(image, label\)"
    ):
        as_source([{"image": HWC[0], "label": 1}])


@pytest.fixture
def module_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    name = f"own_data_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(MODULE)
    (tmp_path / f"{name}_needy.py").write_text("import a_module_nobody_has\n")
    monkeypatch.chdir(tmp_path)
    return name


def test_one_data_set_gets_the_seed_it_asks_for(module_name: str) -> None:
    data = open_data(Recipe(dataset=f"{module_name}:one", seed=5))
    assert (len(data.train), data.validation, data.spec.num_classes) == (12, None, 3)
    assert (data.train.fetch(np.arange(12))[0] == 5).all()
    held_out = open_data(Recipe(dataset=f"{module_name}:one", validation_fraction=0.25))
    assert held_out.validation is not None
    assert (len(held_out.train), len(held_out.validation)) == (9, 3)


def test_a_pair_gets_the_folder(module_name: str) -> None:
    data = open_data(Recipe(dataset=f"{module_name}:pair", seed=5, data_dir="7"))
    assert data.validation is not None
    assert (len(data.train), len(data.validation), data.warnings) == (12, 7, [])


def test_splits_are_taken_as_they_are_and_a_folder_without_effect_is_said(module_name: str) -> None:
    data = open_data(Recipe(dataset=f"{module_name}:splits", data_dir="x"))
    assert data.validation is not None
    assert (len(data.train), len(data.validation)) == (12, 6)
    (warning,) = data.warnings
    assert "--data-dir x has no effect" in warning


def test_what_cannot_be_opened_is_said(module_name: str) -> None:
    for name, said in (
        (f"{module_name}:won", rf"has no won\. Did you mean {module_name}:one\?"),
        (f"{module_name}:nothing", "NoneType is not a data set"),
        ("nowhere.at_all:one", "--dataset nowhere.at_all:one cannot be imported: .*nowhere"),
        (f"{module_name}_needy:one", "cannot be imported: .*a_module_nobody_has"),
    ):
        with pytest.raises(BadInputError, match=said):
            open_data(Recipe(dataset=name))
    with pytest.raises(BadInputError, match="--limit-train-samples"):
        open_data(Recipe(dataset=f"{module_name}:one", dataset_size=3))
