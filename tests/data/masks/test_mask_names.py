"""Masks find their images by name."""

import pytest

from drivetrain.data.masks.mask_names import MaskOwner, find_owner, is_mask_name, owners_by_name

IMAGES = ("x", "x_1", "a/y", "img_007", "scan-image", "7")


@pytest.mark.parametrize(
    ("mask", "image", "is_one_of_many"),
    [
        ("x", "x", False),
        ("x_mask", "x", False),
        ("x-mask", "x", False),
        ("x_labels", "x", False),
        ("x_gt", "x", False),
        ("x_SEG", "x", False),
        ("x_mask_1", "x", True),
        ("x_mask12", "x", True),
        ("x_1_mask", "x_1", False),
        ("x_1_mask_2", "x_1", True),
        ("a/y_label", "a/y", False),
        ("x/anything", "x", True),
        ("a/y/object-3", "a/y", True),
        ("mask_007", "img_007", False),
        ("scan_mask", "scan-image", False),
        ("mask_7", "7", False),
    ],
)
def test_owner(mask: str, image: str, is_one_of_many: bool) -> None:
    assert find_owner(mask, owners_by_name(IMAGES)) == MaskOwner(image, is_one_of_many)


@pytest.mark.parametrize("mask", ["z", "z_mask", "y_mask", "xmask", "b/x", "mask_"])
def test_nobody_owns(mask: str) -> None:
    assert find_owner(mask, owners_by_name(IMAGES)) is None


def test_names_of_masks_among_images() -> None:
    assert all(map(is_mask_name, ("x_mask", "a/x-gt", "mask_3", "x_mask_2", "x_Labels")))
    assert not any(map(is_mask_name, ("x", "unmasked", "mask", "labels/x", "x_masked", "masked_x")))
