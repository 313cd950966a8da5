"""The image files that `predict` is given."""

from collections.abc import Sequence
from pathlib import Path

from drivetrain.data.decode import IMAGE_SUFFIXES
from drivetrain.data.source import DataSpec
from drivetrain.errors import BadInputError


def expand_inputs(inputs: Sequence[str | Path], *, option: str = "INPUT") -> list[Path]:
    """Files as they are, folders as the images in them, sorted by name."""
    files: list[Path] = []
    for given in map(Path, inputs):
        if given.is_dir():
            found = sorted(path for path in given.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
            if not found:
                raise BadInputError(f"{option} {given} holds no image files ({', '.join(IMAGE_SUFFIXES)}).")
            files += found
        elif given.is_file():
            files.append(given)
        else:
            raise BadInputError(f"{option} {given} does not exist; name image files or folders of them.")
    return files


def require_file_channels(spec: DataSpec) -> None:
    """Refuses a run whose images no image file can hold."""
    if spec.channels not in (1, 3):
        raise BadInputError(f"RUN was trained on images of {spec.channels} channels; files hold 1 or 3.")
