"""A cell means an image by its path or its name."""

import pytest

from drivetrain.data.label_tables.named_images import NamedImages

IMAGES = NamedImages(["images/a.png", "images/b.v2.jpg", "train/1.png", "test/1.png", "2.png", "old/2.png"])


@pytest.mark.parametrize(
    ("cell", "found"),
    [
        ("a.png", ["images/a.png"]),
        ("a", ["images/a.png"]),
        ("images/a", ["images/a.png"]),
        ("./images\\a.png", ["images/a.png"]),
        ("/home/me/set/images/a.png", ["images/a.png"]),
        ("b.v2", ["images/b.v2.jpg"]),
        ("b", []),
        ("a.jpg", []),
        ("mages/a.png", ["images/a.png"]),
        ("", []),
        ("1", ["train/1.png", "test/1.png"]),
        ("test/1", ["test/1.png"]),
        ("2.png", ["2.png"]),
        ("old/2.png", ["old/2.png"]),
    ],
)
def test_cells(cell: str, found: list[str]) -> None:
    assert IMAGES.matches(cell) == found


def test_the_folder_of_the_split_is_preferred() -> None:
    assert IMAGES.matches("1.png", folder="test") == ["test/1.png"]
    assert IMAGES.matches("a.png", folder="test") == ["images/a.png"]


def test_files_of_one_name_are_found_by_their_folders() -> None:
    names = [f"p{number}/image.png" for number in range(20_000)]
    images = NamedImages(names)
    assert [images.matches(name) for name in names] == [[name] for name in names]
    assert [images.matches(f"set/p{number}/image") for number in (0, 19_999)] == [[names[0]], [names[-1]]]


def test_a_name_with_two_extensions() -> None:
    images = NamedImages(["a.png.png", "b.jpg", "b.png"])
    assert images.matches("a.png") == ["a.png.png"]
    assert images.matches("a.png.png") == ["a.png.png"]
    assert images.matches("a") == []
    assert images.matches("b") == ["b.jpg", "b.png"]
    assert images.matches("b.png") == ["b.png"]
