"""The image files that `predict` is given."""

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


class UnreadableInputError(BadInputError):
    """A file that is damaged, or no image."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(
            f"INPUT {path} is not an image that can be read ({reason}); put an undamaged PNG, JPEG, TIFF, "
            "BMP, GIF, WebP, PGM or PPM file in its place, or leave it out."
        )
        self.reason = reason


@dataclass(slots=True)
class InputNotes:
    """What is odd about the files that `predict` was given: those it left out, and animations."""

    left_out: dict[Path, BadInputError] = field(default_factory=dict)
    animated: list[Path] = field(default_factory=list)

    def require_some(self, files: Sequence[Path]) -> None:
        """Refuses inputs of which none can be read, by the first of them."""
        if all(path in self.left_out for path in files):
            raise self.left_out[files[0]]

    def sentences(self, *, files: int) -> list[str]:
        """Warnings for whoever asked for the predictions."""
        sentences = [describe_animations([*map(str, self.animated)])] if self.animated else []
        if self.left_out:
            named = [f"{path} ({_reason(error)})" for path, error in self.left_out.items()]
            sentences.append(
                f"{len(named)} of {files} files cannot be read and have no prediction: "
                f"{first_names(named, most=_MOST_NAMED)}."
            )
        return sentences


def _reason(error: BadInputError) -> str:
    return error.reason if isinstance(error, UnreadableInputError) else str(error).rstrip(".")


def require_file_channels(spec: DataSpec) -> None:
    """Refuses a run whose images no image file can hold."""
    if spec.channels not in (1, 3):
        raise BadInputError(
            f"RUN was trained on images of {spec.channels} channels, but files hold 1 or 3; name a run that "
            "was trained on such."
        )
