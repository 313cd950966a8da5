"""The image files that `predict` is given."""

from pathlib import Path

import pytest

from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSpec
from drivetrain.inference.predict.inputs import UnreadableInputError, expand_inputs, require_file_channels


def test_folders_are_their_images_without_what_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    for name in ("b.png", "a.TIF", "notes.txt", "below/c.jpg", "below/d.jpg"):
        (tmp_path / name).touch()
    names = ["a.TIF", "b.png", "below/c.jpg", "below/d.jpg"]
    assert expand_inputs([tmp_path]) == [tmp_path / name for name in names]
    left = expand_inputs([tmp_path], leave_out=[tmp_path / "below" / ".." / "b.png", tmp_path / "none.png"])
    assert left == [tmp_path / name for name in names if name != "b.png"]
    assert expand_inputs([tmp_path / "b.png"], leave_out=[tmp_path / "b.png"]) == [tmp_path / "b.png"]


def test_sentences_say_what_works(tmp_path: Path) -> None:
    with pytest.raises(
        BadInputError, match=r"^--x .* contains no image files; give image files, or a folder "
    ):
        expand_inputs([tmp_path], option="--x")
    said = str(UnreadableInputError(Path("a.png"), "image file is truncated"))
    assert said.startswith(
        "INPUT a.png cannot be read as an image (image file is truncated); replace it with an "
    )
    assert said.endswith("file, or leave it out.")


@pytest.mark.parametrize("channels", [1, 2, 3, 5])
def test_files_hold_one_channel_or_three(channels: int) -> None:
    spec = DataSpec(
        channels=channels, height=8, width=8, num_classes=2, class_names=("a", "b"), image_dtype="uint8"
    )
    if channels in (1, 3):
        require_file_channels(spec)
        return
    with pytest.raises(
        BadInputError, match=f"images with {channels} channels, but image files have 1 or 3; give"
    ):
        require_file_channels(spec)
