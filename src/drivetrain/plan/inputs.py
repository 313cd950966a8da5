"""The image shape and number of samples that a plan assumes, found without opening any data."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drivetrain.catalogue.data_sets import (
    dataset_info,
    dataset_task,
    default_share,
    folder_warnings,
    held_out_count,
    is_external_dataset,
    sample_counts,
)
from drivetrain.catalogue.input_kinds import InputKind
from drivetrain.catalogue.libraries import is_library_model
from drivetrain.catalogue.models import is_external_model, model_info
from drivetrain.catalogue.tasks import DEFAULT_TASK, task_info
from drivetrain.core.errors import BadInputError
from drivetrain.data.folds import fold_size, held_out_size
from drivetrain.models.libraries.library import library_for
from drivetrain.recipe.messages import DEFAULT
from drivetrain.recipe.schema import Recipe

# Images of many sizes are resized to this side, unless --image-size says otherwise.
_SIZE_OF_MANY = 224


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageShape:
    """The image shape and number of classes of a model; None where they are not known."""

    channels: int | None
    image_size: int | None
    num_classes: int | None

    def or_else(self, other: "ImageShape") -> "ImageShape":
        """This shape, with unknown values taken from another."""
        return ImageShape(
            channels=self.channels or other.channels,
            image_size=self.image_size or other.image_size,
            num_classes=self.num_classes or other.num_classes,
        )

    @property
    def missing_options(self) -> list[str]:
        """The options that set the values still unknown."""
        values = {
            "--channels": self.channels,
            "--image-size": self.image_size,
            "--num-classes": self.num_classes,
        }
        return [option for option, value in values.items() if value is None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedInputs:
    """The training data that a plan assumes; `width` is given of images that are not square."""

    samples: int
    channels: int
    image_size: int
    num_classes: int
    warnings: tuple[str, ...] = ()
    input_kind: InputKind = "image"
    width: int | None = None


def planned_inputs(recipe: Recipe, *, origins: Mapping[str, str]) -> PlannedInputs:
    """The shape and number of training samples; `origins` says which options the user gave."""
    kind: InputKind = "image" if recipe.input_kind == "auto" else recipe.input_kind
    image_size = 1 if kind == "table" else recipe.image_size or recipe.tile_size
    asked = ImageShape(channels=recipe.channels, image_size=image_size, num_classes=_classes_left(recipe))
    is_named = origins["dataset"] != DEFAULT or origins["model"] == DEFAULT
    shape, shape_warnings = _image_shape(asked, recipe=recipe, is_named=is_named)
    samples, sample_warnings = _training_samples(recipe)
    if shape.channels is None or shape.image_size is None or shape.num_classes is None:
        missing = " and ".join(shape.missing_options)
        raise BadInputError(
            f"The input of --model {recipe.model} is not known; add {missing}, for example 3, 32 or 10."
        )
    return PlannedInputs(
        samples=samples,
        channels=shape.channels,
        image_size=shape.image_size,
        num_classes=shape.num_classes,
        warnings=(
            *folder_warnings(recipe.dataset, folder=recipe.data_dir),
            *shape_warnings,
            *sample_warnings,
            *_group_warnings(recipe),
        ),
        input_kind=kind,
    )


def known_inputs(recipe: Recipe, fingerprint: Mapping[str, Any]) -> PlannedInputs:
    """The same for data whose fingerprint was measured."""
    samples, has_validation = fingerprint["samples"], "validation" in fingerprint["samples"]
    height, width = fingerprint["height_px"], fingerprint["width_px"]
    is_one_size = all(side["smallest"] == side["largest"] for side in (height, width))
    own_height, own_width = (
        int(side["median"]) if is_one_size else _SIZE_OF_MANY for side in (height, width)
    )
    asked = recipe.image_size or recipe.tile_size
    fraction = recipe.validation_fraction
    if fraction is None:
        fraction = default_share(dataset_info(recipe.dataset), has_validation=has_validation)
    train = samples["train"]
    if recipe.folds is None:
        train -= held_out_count(train, fraction=fraction)
    else:
        train = _outside_fold(train, recipe)
    return PlannedInputs(
        samples=min(train, recipe.limit_train_samples or train),
        channels=recipe.channels or fingerprint["read_channels"],
        image_size=asked or own_height,
        num_classes=_classes_left(recipe) or len(fingerprint["class_names"]),
        warnings=_group_warnings(recipe),
        width=own_width if asked is None and own_width != own_height else None,
    )


def _classes_left(recipe: Recipe) -> int | None:
    """The classes of the model if --num-classes says how many there are in the data."""
    return None if recipe.num_classes is None else recipe.num_classes - len(recipe.ignore_class)


def _group_warnings(recipe: Recipe) -> tuple[str, ...]:
    if recipe.group_by is None:
        return ()
    return (
        f"--group-by {recipe.group_by} holds out whole groups, so the number of training samples may differ "
        "from this plan.",
    )


def _image_shape(asked: ImageShape, *, recipe: Recipe, is_named: bool) -> tuple[ImageShape, tuple[str, ...]]:
    native = _native_shape(recipe.model)
    if _is_known(recipe.dataset):
        if is_named or native is None:
            return asked.or_else(_dataset_shape(recipe.dataset)), ()
        reason = "No --dataset is given, so the plan assumes"
    else:
        asked = asked.or_else(_dataset_shape(recipe.dataset))
        reason = f"A plan does not open --dataset {recipe.dataset}, so it assumes"
    if native is None or not asked.missing_options:
        return asked, ()
    shape = asked.or_else(native)
    own = f"{shape.channels}x{shape.image_size}x{shape.image_size} images and {shape.num_classes} classes"
    options = ", ".join(asked.missing_options)
    return shape, (f"{reason} the defaults of --model {recipe.model}: {own}; {options} can change them.",)


def _native_shape(model: str) -> ImageShape | None:
    if is_library_model(model):
        library, own_name = library_for(model)
        facts = library.facts(own_name, params={})
        return ImageShape(channels=facts.channels, image_size=facts.image_size, num_classes=facts.num_classes)
    if is_external_model(model):
        return None
    info = model_info(model)
    return ImageShape(channels=info.channels, image_size=info.image_size, num_classes=info.num_classes)


def _is_known(dataset: str) -> bool:
    """Whether the size and image shape of a data set are known without reading its files."""
    return not is_external_dataset(dataset) and dataset_info(dataset).is_sized


def _dataset_shape(dataset: str) -> ImageShape:
    if is_external_dataset(dataset):
        return ImageShape(channels=None, image_size=None, num_classes=None)
    info = dataset_info(dataset)
    return ImageShape(
        channels=info.channels or None, image_size=info.height or None, num_classes=info.num_classes or None
    )


def _training_samples(recipe: Recipe) -> tuple[int, tuple[str, ...]]:
    available = _available_samples(recipe)
    limit = recipe.limit_train_samples
    if limit is None or limit < available:
        return limit or available, ()
    if limit == available:
        return available, ()
    return available, (
        f"--limit-train-samples {limit} has no effect: there are only {available} training samples.",
    )


def _available_samples(recipe: Recipe) -> int:
    fraction = recipe.validation_fraction
    if recipe.dataset_size is None:
        if not _is_known(recipe.dataset):
            raise BadInputError(
                f"--dataset {recipe.dataset} is not opened for a plan; add the number of its training "
                "samples, for example --dataset-size 1000."
            )
        if recipe.folds is not None:
            return _outside_fold(dataset_info(recipe.dataset).train_samples, recipe)
        return sample_counts(dataset_info(recipe.dataset), validation_fraction=fraction).train
    if recipe.folds is not None:
        return _outside_fold(recipe.dataset_size, recipe)
    # --dataset-size counts the training samples, so only an explicit --validation-fraction is subtracted;
    # the default fraction of a data set would take away samples that the user has not counted.
    return recipe.dataset_size - held_out_count(recipe.dataset_size, fraction=fraction or 0.0)


def _outside_fold(samples: int, recipe: Recipe) -> int:
    """The number of training samples outside the held-out fold; without --fold, fold 0, the largest."""
    assert recipe.folds is not None
    fold = recipe.fold or 0
    if task_info(dataset_task(recipe.dataset) or DEFAULT_TASK).has_dense_labels:
        held_out = held_out_size(recipe.fold_scheme, samples=samples, folds=recipe.folds, fold=fold)
        return samples - held_out
    return samples - fold_size(samples, folds=recipe.folds, fold=fold)
