"""`--ignore-class` takes classes out of masks."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from drivetrain.core.errors import BadInputError
from drivetrain.data.masks.border_weights import WithBorderWeights
from drivetrain.data.masks.ignored_classes import without_classes
from drivetrain.data.masks.mask_folder import open_mask_folder
from drivetrain.data.masks.masked_images import HeldMaskedImages, MaskedSplits, pixel_counts
from drivetrain.data.preprocess import DensePreprocess
from drivetrain.data.source import IGNORED, DataSpec, require_labels
from drivetrain.data.splits import open_data
from drivetrain.data.training_tiles import masked_of
from drivetrain.recipe.load import resolve_recipe
from drivetrain.recipe.schema import Recipe
from tests.data.mask_files import write_pairs

NAMES = {"road": 3, "unlabelled": 7, "car": 50, "traffic light": 90}


def street(folder: Path) -> Path:
    write_pairs(folder, count=6, values=tuple(NAMES.values()))
    (folder / "classes.json").write_text(json.dumps(NAMES))
    return folder


def opened(folder: Path, **options: object) -> MaskedSplits:
    return open_mask_folder(str(folder), **options)  # type: ignore[arg-type]


def test_their_pixels_are_ignored_and_the_other_classes_move_up(tmp_path: Path) -> None:
    plain = opened(street(tmp_path))
    found = without_classes(plain, ["unlabelled"])
    assert found.spec.class_names == ("road", "car", "traffic light")
    assert found.spec.mask_values == ((3,), (50,), (90,))
    assert (found.spec.num_classes, found.spec.label_values) == (3, 4)
    assert found.spec.ignored_classes == ("unlabelled",)
    for index in range(len(plain.train)):
        before, after = plain.train.whole(index)[1], found.train.whole(index)[1]
        assert np.array_equal(after, np.array([0, IGNORED, 1, 2], dtype=np.uint8)[before])
        assert (after == IGNORED).any()
    counts = pixel_counts(plain.train, num_classes=4)
    assert pixel_counts(found.train, num_classes=3).tolist() == counts[[0, 2, 3]].tolist()
    assert DataSpec.from_json(json.loads(json.dumps(found.spec.to_json()))) == found.spec
    assert without_classes(plain, []) is plain


def test_images_in_memory_stay_in_memory() -> None:
    masks = np.array([0, 1, 2, 1], dtype=np.uint8).reshape(1, 2, 2, 1)
    held = HeldMaskedImages(images=np.zeros((1, 2, 2, 1), dtype=np.uint8), masks=masks, names=("a",))
    spec = DataSpec(
        channels=1, height=2, width=2, num_classes=3, class_names=("a", "b", "c"), image_dtype="uint8"
    )
    splits = MaskedSplits(train=held, validation=held, test=None, spec=spec)
    found = without_classes(splits, ["a"])
    assert isinstance(found.train, HeldMaskedImages)
    assert found.train.masks.reshape(-1).tolist() == [IGNORED, 0, 1, 0]
    assert found.spec.mask_values == ()


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (("unlabeled",), "--ignore-class unlabeled is not a class of the masks. Did you mean unlabelled?"),
        (("zebra",), "Classes: road, unlabelled, car, traffic light."),
        (tuple(NAMES), "leaves none of the 4 classes"),
        (("road", "car", "unlabelled"), "leaves only traffic light of the 4 classes"),
    ],
)
def test_names_that_do_not_fit_are_refused(names: tuple[str, ...], says: str, tmp_path: Path) -> None:
    with pytest.raises(BadInputError) as refusal:
        without_classes(opened(street(tmp_path)), names)
    assert says in str(refusal.value)


@pytest.mark.parametrize("given", ["unlabelled,traffic light", ("unlabelled", "traffic light")])
def test_a_recipe_opens_its_data_without_them(given: object, tmp_path: Path) -> None:
    folder = street(tmp_path)
    options = {"dataset": "mask-folder", "data_dir": str(folder), "model": "unet_same", "ignore_class": given}
    recipe = resolve_recipe(overrides=options).recipe
    assert recipe.ignore_class == ("unlabelled", "traffic light")
    for num_classes in (None, 4):
        data = open_data(Recipe(**{**recipe.model_dump(), "num_classes": num_classes}))
        assert data.spec.class_names == ("road", "car")
        assert data.validation is not None
        for source in (data.train, data.validation):
            assert set(np.unique(masked_of(source).whole(0)[1])) == {0, 1, IGNORED}


def test_ignored_regions_are_no_objects_between_which_borders_weigh() -> None:
    masks = np.zeros((1, 9, 20, 1), dtype=np.uint8)
    masks[0, 2:6, 2:6] = 1
    masks[0, 2:6, 8:12] = IGNORED
    held = HeldMaskedImages(images=masks, masks=masks, names=("a",))
    assert not WithBorderWeights(held, 3.0, 0, True).whole(0)[1][..., 1].any()
    assert WithBorderWeights(held, 3.0, 0, False).whole(0)[1][..., 1].any()


def test_resizing_mixes_no_class_with_them() -> None:
    """Two classes are interpolated otherwise, which would make 0 and 255 a class."""
    spec = DataSpec(
        channels=1,
        height=8,
        width=8,
        num_classes=2,
        class_names=("a", "b"),
        image_dtype="uint8",
        task="segmentation",
        ignored_classes=("c",),
    )
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0, 1, IGNORED], dtype=torch.uint8)[
        torch.randint(0, 3, (2, 8, 8, 1), generator=generator)
    ]
    scaled = DensePreprocess(spec, image_size=13).labels(labels)
    assert set(scaled.flatten().tolist()) == {0, 1, IGNORED}


def test_their_label_is_refused_where_no_class_is_ignored() -> None:
    labels = np.array([0, 1, IGNORED], dtype=np.uint8).reshape(1, 1, 3, 1)
    require_labels(labels, num_classes=2, may_ignore=True)
    with pytest.raises(BadInputError, match="A sample has the label 255"):
        require_labels(labels, num_classes=2)
    with pytest.raises(BadInputError, match="A sample has the label 2,"):
        require_labels(labels * 2, num_classes=2, may_ignore=True)
