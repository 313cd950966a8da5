"""Finds the image files given to `predict`, and collects those that cannot be read."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.decode import IMAGE_SUFFIXES
from drivetrain.data.files.folder_files import describe_animations, first_names
from drivetrain.data.source import DataSpec

__all__ = ["InputNotes", "UnreadableInputError", "expand_inputs", "require_file_channels"]

_MOST_NAMED = 20


def expand_inputs(
    inputs: Sequence[str | Path], *, option: str = "INPUT", leave_out: Sequence[Path] = ()
) -> list[Path]:
    """Replaces folders by the images in them, sorted by name; skips the files in `leave_out`."""
    left_out = {path.resolve() for path in leave_out}
    files: list[Path] = []
    for given in map(Path, inputs):
        if given.is_dir():
            found = sorted(path for path in given.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES)
            kept = [path for path in found if path.resolve() not in left_out] if left_out else found
            if not kept:
                raise BadInputError(
                    f"{option} {given} contains no image files; give image files, or a folder that contains "
                    f"some ({', '.join(IMAGE_SUFFIXES)})."
                )
            files += kept
        elif given.is_file():
            files.append(given)
        else:
            raise BadInputError(f"{option} {given} does not exist; give image files or folders of images.")
    return files


class UnreadableInputError(BadInputError):
    """A file that is damaged, or not an image."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"INPUT {path} cannot be read as an image ({reason}); replace it with an undamaged PNG, JPEG, "
            "TIFF, BMP, GIF, WebP, PGM or PPM file, or leave it out."
        )
        self.reason = reason


@dataclass(slots=True)
class InputNotes:
    """Files that `predict` warns about: those it cannot read, and animations."""

    left_out: dict[Path, BadInputError] = field(default_factory=dict)
    animated: list[Path] = field(default_factory=list)

    def require_some(self, files: Sequence[Path]) -> None:
        """Raises the error of the first file if none can be read."""
        if all(path in self.left_out for path in files):
            raise self.left_out[files[0]]

    def sentences(self, *, files: int) -> list[str]:
        """The warnings to show."""
        sentences = [describe_animations([*map(str, self.animated)])] if self.animated else []
        if self.left_out:
            named = [f"{path} ({_reason(error)})" for path, error in self.left_out.items()]
            sentences.append(
                f"{len(named)} of {files} files cannot be read and get no prediction: "
                f"{first_names(named, most=_MOST_NAMED)}."
            )
        return sentences


def _reason(error: BadInputError) -> str:
    return error.reason if isinstance(error, UnreadableInputError) else str(error).rstrip(".")


def require_file_channels(spec: DataSpec) -> None:
    """Raises if the run's images have a number of channels that image files cannot have."""
    if spec.channels not in (1, 3):
        raise BadInputError(
            f"RUN was trained on images with {spec.channels} channels, but image files have 1 or 3; give a "
            "run that was trained on such images."
        )
