"""`--dataset image-folder` and `--dataset imagenet`: class folders of image files, or a pack of them."""

from pathlib import Path

from drivetrain.core.errors import BadInputError
from drivetrain.data.files.data_dir import existing_folder, folder_above, folder_that_works
from drivetrain.data.files.folder_files import (
    ClassFiles,
    class_folders,
    first_names,
    holds_images,
    list_classes,
)
from drivetrain.data.files.split_folders import split_folders
from drivetrain.data.source import DataSplits
from drivetrain.data.sources.pack import is_pack, read_pack
from drivetrain.data.sources.stored_images import ImageRequest, StoredImages, open_images

_TRAIN, _VALIDATION, _TEST = "train", "validation", "test"
_FEW = 5
_PAIRS = {"images", "masks"}
_RECIPE_OF_A_RUN = "recipe.yaml"


def open_image_folder(data_dir: str | None, *, request: ImageRequest) -> DataSplits:
    """Class folders, or the pack that lies in --data-dir instead of them."""
    folder = existing_folder(data_dir, dataset=request.dataset, holding="one folder per class")
    return open_images(read_pack(folder) if is_pack(folder) else find_images(folder), request=request)


def find_images(folder: Path, *, by_name_only: bool = False) -> StoredImages:
    """The images of DIR/train, DIR/val and DIR/test, or of DIR alone; `by_name_only` opens none of them."""
    places, warnings = _split_folders(folder)
    class_names = class_folders(places[_TRAIN])
    if set(class_names) == _PAIRS:
        raise BadInputError(
            f"--data-dir {folder} contains folders of images and masks instead of classes; to train on "
            "them, use --dataset mask-folder."
        )
    if places[_TRAIN] == folder:
        if len(class_names) < 2:
            _refuse_wrong_level(folder, holding="fewer than two class folders")
        _refuse_level_above(folder, class_names)
    if not class_names:
        raise BadInputError(
            f"--data-dir {folder} contains no class folders; arrange the files like {folder}/cat/1.jpg and "
            f"{folder}/dog/2.jpg, or like {folder}/train/cat/1.jpg and {folder}/val/cat/2.jpg."
        )
    found = {
        split: _list_split(path, class_names, by_name_only=by_name_only) for split, path in places.items()
    }
    if len(found[_TRAIN].store) == 0:
        raise BadInputError(
            f"--data-dir {folder} contains no images in its class folders "
            f"({first_names(list(class_names))}); put files such as .png or .jpg there."
        )
    kept = {split: files for split, files in found.items() if len(files.store)}
    return StoredImages(
        class_names=class_names,
        stores={split: files.store for split, files in kept.items()},
        labels={split: files.labels for split, files in kept.items()},
        others=tuple(name for files in found.values() for name in files.others),
        warnings=[*warnings, *(warning for files in found.values() for warning in files.warnings)],
    )


def folder_of_classes(folder: Path) -> Path:
    """The folder whose folders are the classes of the training images: DIR/train, or DIR itself."""
    return _split_folders(folder)[0][_TRAIN]


def _refuse_wrong_level(folder: Path, *, holding: str) -> None:
    above = folder_above(folder, holds_classes) if holds_images(folder) else None
    meant = above or folder_that_works(folder, holds_classes)
    if meant is not None:
        classes = class_folders(folder_of_classes(meant))
        raise BadInputError(
            f"--data-dir {folder} contains {holding}, but --data-dir {meant} contains the classes "
            f"{first_names(list(classes))}; use that folder."
        )


def _refuse_level_above(folder: Path, names: tuple[str, ...]) -> None:
    """Refuses folders of classes in the place of classes; a class may be divided into folders of its own."""
    if any(holds_images(folder / name) for name in names):
        return
    below = {name: class_folders(folder / name) for name in names}
    if any(set(inner) == _PAIRS or _has_run(folder / name, inner) for name, inner in below.items()):
        _refuse_wrong_level(folder, holding="something other than class folders")
    for name, inner in below.items():
        alike = [other for other in names if below[other] == inner]
        if len(inner) > 1 and len(alike) > 1 and holds_classes(folder / name):
            raise BadInputError(
                f"--data-dir {folder} contains the same folders ({first_names(list(inner))}) in each of "
                f"{first_names(alike)}; if these folders are the classes, use --data-dir {folder / name}; "
                f"if {first_names(alike)} are the classes, move them into {folder / _TRAIN}."
            )


def _has_run(folder: Path, names: tuple[str, ...]) -> bool:
    return any((folder / name / _RECIPE_OF_A_RUN).is_file() for name in names)


def holds_classes(folder: Path) -> bool:
    """Whether two folders in a folder, or in its train, hold images."""
    train = folder_of_classes(folder)
    names = class_folders(train)
    if set(names) == _PAIRS or _has_run(train, names[:_FEW]):
        return False
    return sum(holds_images(train / name) for name in names[:_FEW]) > 1


def _list_split(folder: Path, class_names: tuple[str, ...], *, by_name_only: bool) -> ClassFiles:
    unknown = sorted(set(class_folders(folder)) - set(class_names))
    if unknown:
        raise BadInputError(
            f"--data-dir: {folder} has the class {first_names(unknown)}, which the training images lack; "
            "add training images of it or remove the folder."
        )
    return list_classes(folder, class_names, by_name_only=by_name_only)


def _split_folders(folder: Path) -> tuple[dict[str, Path], list[str]]:
    found = split_folders(folder)
    # A class may be called train too, but then it holds images, not classes.
    if _TRAIN not in found or not class_folders(found[_TRAIN]):
        return {_TRAIN: folder}, []
    if _TEST in found and _VALIDATION not in found:
        found[_VALIDATION] = found.pop(_TEST)
    others = sorted(set(class_folders(folder)) - {path.name for path in found.values()})
    warning = f"{folder} also contains {first_names(others)}; only train, val and test are used."
    return found, [warning] if others else []
