"""Says what a folder holds that is no data set, and what would work."""

import re
from collections.abc import Sequence
from itertools import islice
from pathlib import Path, PurePosixPath

from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import count_of, nearest_name
from drivetrain.data.files.data_dir import folder_above, folder_that_works, folders_that_work
from drivetrain.data.files.decode import IMAGE_SUFFIXES
from drivetrain.data.files.folder_files import class_folders, files_below, first_names, holds_images
from drivetrain.data.files.split_folders import split_called
from drivetrain.data.finding.candidate import Candidate
from drivetrain.data.finding.pairs import holds_masks
from drivetrain.data.masks.find_pairs import mask_folders
from drivetrain.data.sources.image_folder import folder_of_classes, holds_classes

__all__ = [
    "refuse_no_folder",
    "refuse_pairs_below",
    "refuse_runs",
    "refuse_too_little",
    "refuse_unrecognised",
]

_ARCHIVES = (".zip", ".tar", ".tgz", ".tar.gz", ".tar.bz2", ".tar.xz", ".7z", ".rar")
_VIDEOS = (".mp4", ".avi", ".mov", ".mkv", ".webm", ".m4v", ".mpg", ".mpeg", ".wmv")
_OF_A_RUN = ("recipe.yaml", "identity.json")
_OF_FOLDS = "crossval.json"
_MOST_KINDS = 4
_MOST_DATA_SETS = 20
_LAYOUTS = (
    "sort them into one folder per class ({folder}/cat/1.jpg, {folder}/dog/2.jpg), put masks beside them "
    "({folder}/images/1.png, {folder}/masks/1.png), or add a table {folder}/labels.csv with the header "
    "file,label"
)


def refuse_no_folder(directory: Path) -> None:
    """Refuses a path that is no folder, and a directory that a training wrote."""
    if not directory.exists():
        raise BadInputError(_absent(directory))
    if not directory.is_dir():
        raise BadInputError(_of_file(directory))
    if _is_run(directory):
        raise BadInputError(
            f"{directory} is a run directory; to go on with it: drivetrain train --output-dir {directory}; "
            f"to use it: drivetrain predict {directory} IMAGES, or drivetrain evaluate {directory}."
        )
    if (directory / _OF_FOLDS).is_file():
        raise BadInputError(
            f"{directory} is the directory of a cross-validation; to go on with it: drivetrain crossval "
            f"--output-dir {directory}."
        )


def _absent(directory: Path) -> str:
    beside = class_folders(directory.parent) if directory.parent.is_dir() else ()
    near = nearest_name(directory.name, beside)
    remedy = "give the folder that holds your images" if near is None else f"use {directory.parent / near}"
    return f"The folder {directory} does not exist; {remedy}."


def _of_file(path: Path) -> str:
    if path.name.lower().endswith(_ARCHIVES):
        return f"{path} is an archive; unpack it ({_unpacked(path)}) and give the folder that results."
    return f"{path} is a file; give the folder that holds your images, such as {path.parent}."


def _unpacked(path: Path) -> str:
    name = path.name.lower()
    if name.endswith(".zip"):
        return f"unzip {path} -d {path.with_suffix('')}"
    return f"tar -xf {path}" if ".tar" in name or name.endswith(".tgz") else "with its own program"


def _is_run(folder: Path) -> bool:
    return all((folder / name).is_file() for name in _OF_A_RUN)


def refuse_runs(folder: Path) -> None:
    """Refuses a folder of run directories, whose images are no data."""
    runs = [name for name in class_folders(folder) if _is_run(folder / name)]
    if runs:
        beside = "" if len(runs) == len(class_folders(folder)) else "; to train on the rest, move them away"
        raise BadInputError(
            f"{folder} holds run directories ({first_names(runs)}); to go on with one: drivetrain train "
            f"--output-dir {folder / runs[0]}{beside}."
        )


def refuse_pairs_below(folder: Path) -> None:
    """Names the folder of images with masks that a folder holds beside a table of other things."""
    below = folder_that_works(folder, holds_masks)
    if below is not None:
        raise BadInputError(
            f"{folder} holds images with masks in {below}; give that folder, or add --dataset image-table to "
            "read the table."
        )


def refuse_too_little(candidate: Candidate) -> None:
    """Refuses a single image, a single class, and masks of nothing but background."""
    folder, dataset = candidate.found.data_dir, candidate.found.dataset
    if candidate.num_images is not None and candidate.num_images < 2:
        raise BadInputError(_single_image(folder, candidate.holding))
    names = candidate.class_names
    if names is not None and len(names) < 2:
        where = "the table names" if dataset == "image-table" else "has images of"
        raise BadInputError(_single_class(folder, f"{where} one class only, {first_names([*names])}"))
    problem = candidate.all_background()
    if problem is not None:
        raise BadInputError(problem)


def _single_image(folder: Path, holding: str) -> str:
    return (
        f"{folder} holds {holding} only; training needs at least two images, one of them to validate on, "
        "and works well from some dozens on. Add images."
    )


def _single_class(folder: Path, problem: str) -> str:
    return f"{folder}: {problem}, so there is nothing to tell apart; add images of another class."


def refuse_unrecognised(directory: Path) -> BadInputError:
    """The error that says what a folder holds that is not recognised."""
    files = files_below(directory)
    images = [name for name in files if name.lower().endswith(IMAGE_SUFFIXES)]
    problem = _without_images(directory, files) if not images else _with_images(directory, images)
    return BadInputError(problem)


def _without_images(directory: Path, files: Sequence[str]) -> str:
    if not files:
        return f"{directory} is empty; give the folder that holds your images."
    archives, videos = (_ending(files, kinds) for kinds in (_ARCHIVES, _VIDEOS))
    if archives:
        path = directory / archives[0]
        return (
            f"{directory} holds no images but an archive, {archives[0]}; unpack it ({_unpacked(path)}) and "
            "give the folder that results."
        )
    if videos:
        return (
            f"{directory} holds {count_of(len(videos), 'video')} ({_kinds(videos)}) and no images; save "
            f"frames as images (ffmpeg -i {directory / videos[0]} -r 1 frames/%05d.png) and sort them into "
            "one folder per class."
        )
    return (
        f"{directory} holds {count_of(len(files), 'file')} ({_kinds(files)}), but no images; give a folder "
        f"of image files ({', '.join(IMAGE_SUFFIXES)}), or convert yours to PNG or TIFF."
    )


def _with_images(directory: Path, images: Sequence[str]) -> str:
    if len(images) == 1:
        return _single_image(directory, f"one image, {images[0]},")
    boxes = [path for path in mask_folders(directory) if not _ending(files_below(path), IMAGE_SUFFIXES)]
    if boxes:
        return (
            f"{boxes[0]} holds {_kinds(files_below(boxes[0])) or 'nothing'} instead of masks, and bounding "
            "boxes are not supported; masks are images that give the class of each pixel."
        )
    above = folder_above(directory, _holds_data_set) if holds_images(directory) else None
    if above is not None:
        return (
            f"{directory} holds {len(images)} images, but nothing says what they show; the folder above, "
            f"{above}, holds a data set with them."
        )
    below = [*islice(folders_that_work(directory, _holds_data_set), _MOST_DATA_SETS)]
    if below:
        return f"{directory} holds {len(images)} images in no known layout; {_to_use(directory, below)}."
    return _unlabelled(directory, images)


def _to_use(directory: Path, below: Sequence[Path]) -> str:
    """Which data set to use of those in a folder: the training images, if one is called so."""
    outer = [path for path in below if not any(other in path.parents for other in below)]
    splits = {path: _split_in_path(directory, path) for path in outer}
    train = next((path for path, split in splits.items() if split == "train"), None)
    held = next((path for path, split in splits.items() if split not in (None, "train")), None)
    if train is None or held is None:
        return f"use the data set in {train or below[0]}"
    return (
        f"use the data set in {train}, or to use {held}, too, move them to {directory / 'train'} and "
        f"{directory / str(splits[held])}"
    )


def _split_in_path(directory: Path, path: Path) -> str | None:
    words = re.split(r"[\W\d_]+", path.relative_to(directory).as_posix())
    return next((split for split in map(split_called, words) if split is not None), None)


def _unlabelled(directory: Path, images: Sequence[str]) -> str:
    top = folder_of_classes(directory)
    classes = [name for name in class_folders(top) if _ending(files_below(top / name), IMAGE_SUFFIXES)]
    if len(classes) == 1 and all(name.count("/") for name in images):
        return _single_class(directory, f"all {len(images)} images are of one class, {classes[0]}")
    layouts = _LAYOUTS.format(folder=directory)
    if len(classes) > 1 and any(split_called(name) is None for name in classes):
        layouts = f"if {first_names(classes)} are classes, add --dataset image-folder; otherwise {layouts}"
    return f"{directory} holds {len(images)} images, but nothing says what they show; {layouts}."


def _holds_data_set(folder: Path) -> bool:
    """Whether a folder holds class folders, or images with masks in folders of their own."""
    return holds_classes(folder) or holds_masks(folder)


def _ending(files: Sequence[str], suffixes: tuple[str, ...]) -> list[str]:
    return [name for name in files if name.lower().endswith(suffixes)]


def _kinds(files: Sequence[str]) -> str:
    suffixes = sorted({PurePosixPath(name).suffix.lower() or "no extension" for name in files})
    return ", ".join(suffixes[:_MOST_KINDS]) + (", ..." if len(suffixes) > _MOST_KINDS else "")
