"""The image files that `predict` is given."""

from collections.abc import Sequence
from pathlib import Path

from drivetrain.data.decode import IMAGE_SUFFIXES
from drivetrain.data.source import DataSpec
from drivetrain.errors import BadInputError

__all__ = ["expand_inputs", "require_file_channels", "unreadable_input"]


def expand_inputs(
    inputs: Sequence[str | Path], *, option: str = "INPUT", leave_out: Sequence[Path] = ()
) -> list[Path]:
    """Files as they are, folders as the images in them, sorted by name, without those to `leave_out`."""
    left_out = {path.resolve() for path in leave_out}
    files: list[Path] = []
    for given in map(Path, inputs):
        if given.is_dir():
            found = sorted(path for path in given.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
            kept = [path for path in found if path.resolve() not in left_out] if left_out else found
            if not kept:
                raise BadInputError(
                    f"{option} {given} holds no image files; name image files, or a folder with some in it "
                    f"({', '.join(IMAGE_SUFFIXES)})."
                )
            files += kept
        elif given.is_file():
            files.append(given)
        else:
            raise BadInputError(f"{option} {given} does not exist; name image files or folders of them.")
    return files


def unreadable_input(path: Path, reason: str) -> BadInputError:
    """What to say of a file that is damaged, or no image."""
    return BadInputError(
        f"INPUT {path} is not an image that can be read ({reason}); put an undamaged PNG, JPEG, TIFF, BMP, "
        "GIF, WebP, PGM or PPM file in its place, or leave it out."
    )


def require_file_channels(spec: DataSpec) -> None:
    """Refuses a run whose images no image file can hold."""
    if spec.channels not in (1, 3):
        raise BadInputError(
            f"RUN was trained on images of {spec.channels} channels, but files hold 1 or 3; name a run that "
            "was trained on such."
        )
