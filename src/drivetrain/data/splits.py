"""Opens a recipe's data: the sources, the samples held out for validation, the limits, the bad samples."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from drivetrain.catalogue.data_sets import (
    dataset_info,
    default_share,
    folder_warnings,
    held_out_count,
    is_external_dataset,
)
from drivetrain.catalogue.input_kinds import plural_of
from drivetrain.core.errors import BadInputError
from drivetrain.data.advice import options_to_hold_out, unvalidated_classes
from drivetrain.data.bad_samples import settle_bad_samples
from drivetrain.data.folds import fold_indices, system_a_split, take_fold
from drivetrain.data.groups.whole_groups import hold_out_groups
from drivetrain.data.held_out import groups_of, held_out_order, idle_split_warnings
from drivetrain.data.labels import known_labels_of, labels_of
from drivetrain.data.masks.mask_folder import open_mask_folder
from drivetrain.data.masks.pages import file_of
from drivetrain.data.normalisation import normalised_as_asked
from drivetrain.data.segmentation_splits import as_samples
from drivetrain.data.source import DataSplits, Source, SubsetSource
from drivetrain.data.sources.cifar import open_cifar
from drivetrain.data.sources.digits import open_digits
from drivetrain.data.sources.image_folder import open_image_folder
from drivetrain.data.sources.image_table import open_image_table, table_request
from drivetrain.data.sources.isbi2012 import open_isbi2012
from drivetrain.data.sources.mnist import open_mnist
from drivetrain.data.sources.pack import open_packed
from drivetrain.data.sources.stored_images import ImageRequest
from drivetrain.data.sources.synthetic import open_synthetic
from drivetrain.data.sources.synthetic_em import open_synthetic_em
from drivetrain.data.training_tiles import masked_of
from drivetrain.recipe.checks.folds import require_fold
from drivetrain.recipe.schema import Recipe

__all__ = ["open_data", "split_user_data", "warn_of_divided_files"]

# The systems that published on these data trained on the first images and validated on the last.
_HELD_OUT_IN_ORDER = "isbi2012"
_TAKE_VAL_FOLDERS = ("image-folder", "imagenet")


def warn_of_divided_files(splits: DataSplits) -> list[str]:
    """A warning if pages of one file are in both the training and the validation set."""
    if splits.validation is None:
        return []
    divided = sorted(_volumes(splits.train) & _volumes(splits.validation))
    if not divided:
        return []
    return [
        f"Pages of {divided[0]} are in both the training and the validation set; neighbouring pages look "
        "alike, so results on new images may be worse than the validation results. To keep files apart, use "
        "--group-by file, or put them into train/ and val/ of --data-dir."
    ]


def _volumes(source: Source) -> set[str]:
    masked = masked_of(source)
    files = (file_of(masked.name(index)) for index in range(len(masked)))
    return {file for file in files if file is not None}


def open_data(recipe: Recipe) -> DataSplits:
    """The data a recipe names, ready to train and validate on."""
    require_fold(recipe)
    arranged = normalised_as_asked(_with_class_warning(_open_arranged(recipe)), recipe)
    return settle_bad_samples(arranged, policy=recipe.on_bad_sample)


def split_user_data(recipe: Recipe, *, train: Any, validation: Any = None) -> DataSplits:
    """A Python user's own data (anything `as_source` takes, or images with masks), by the recipe's rules."""
    require_fold(recipe)
    _require_no_size(recipe)
    own = _arrange(_own_splits(recipe, train, validation), recipe=recipe)
    arranged = normalised_as_asked(_with_class_warning(own), recipe)
    return settle_bad_samples(arranged, policy=recipe.on_bad_sample)


def _with_class_warning(splits: DataSplits) -> DataSplits:
    """Adds a warning if all training samples belong to one of several classes."""
    labels = known_labels_of(splits.train)
    if labels is None or labels.ndim > 1 or splits.spec.num_classes < 2 or len(labels) < 2:
        return splits
    if int(labels.min()) != int(labels.max()):
        return splits
    name = splits.spec.class_names[int(labels[0])]
    warning = (
        f"All {len(labels)} training samples belong to class {name}, so the model cannot learn the other "
        "classes."
    )
    return replace(splits, warnings=[*splits.warnings, warning])


def _own_splits(recipe: Recipe, train: Any, validation: Any) -> DataSplits:
    from drivetrain.data.sources.arrays import splits_of  # torch, which a wrong --data-dir need not wait for
    from drivetrain.data.sources.masked_arrays import is_masked, masked_splits_of

    if is_masked(train):
        return as_samples(masked_splits_of(train, validation), recipe=recipe)
    return splits_of(train, validation, num_classes=recipe.num_classes, choice=recipe.input_kind)


def _open_arranged(recipe: Recipe) -> DataSplits:
    if is_external_dataset(recipe.dataset):
        return _arrange(_open_external(recipe), recipe=recipe)
    info = dataset_info(recipe.dataset)
    if not info.generated:
        _require_no_size(recipe)
    splits = _OPENERS[info.name](recipe)
    splits.warnings.extend(folder_warnings(recipe.dataset, folder=recipe.data_dir))
    share = default_share(info, has_validation=splits.validation is not None)
    arranged = _arrange(splits, recipe=recipe, default_fraction=share)
    if info.name == "mask-folder":
        arranged.warnings.extend(warn_of_divided_files(arranged))
    return arranged


def _open_external(recipe: Recipe) -> DataSplits:
    from drivetrain.data.sources.arrays import open_external

    _require_no_size(recipe)
    return open_external(
        recipe.dataset,
        data_dir=recipe.data_dir,
        seed=recipe.seed,
        as_splits=lambda train, validation: _own_splits(recipe, train, validation),
    )


def _open_synthetic(recipe: Recipe) -> DataSplits:
    return open_synthetic(
        seed=recipe.seed,
        dataset_size=recipe.dataset_size,
        channels=recipe.channels,
        image_size=recipe.image_size,
        num_classes=recipe.num_classes,
    )


def _image_request(recipe: Recipe) -> ImageRequest:
    return ImageRequest(
        dataset=dataset_info(recipe.dataset).name,
        image_size=recipe.image_size,
        channels=recipe.channels,
        seed=recipe.seed,
        augment=recipe.augment,
        random_resized_crop=recipe.random_resized_crop,
        white_level=recipe.white_level,
        on_bad_sample=recipe.on_bad_sample,
    )


def _open_folder(recipe: Recipe) -> DataSplits:
    return open_image_folder(recipe.data_dir, request=_image_request(recipe))


def _open_isbi2012(recipe: Recipe) -> DataSplits:
    return as_samples(open_isbi2012(recipe.data_dir), recipe=recipe)


def _open_mask_folder(recipe: Recipe) -> DataSplits:
    folder = open_mask_folder(
        recipe.data_dir,
        channels=recipe.channels,
        num_classes=recipe.num_classes,
        on_bad_sample=recipe.on_bad_sample,
        white_level=recipe.white_level,
    )
    return as_samples(folder, recipe=recipe)


def _open_synthetic_em(recipe: Recipe) -> DataSplits:
    generated = open_synthetic_em(
        seed=recipe.seed,
        dataset_size=recipe.dataset_size,
        image_size=recipe.image_size,
        channels=recipe.channels,
        num_classes=recipe.num_classes,
    )
    return as_samples(generated, recipe=recipe)


_OPENERS: dict[str, Callable[[Recipe], DataSplits]] = {
    "cifar10": lambda recipe: open_cifar("cifar10", data_dir=recipe.data_dir),
    "cifar100": lambda recipe: open_cifar("cifar100", data_dir=recipe.data_dir),
    "digits": lambda _: open_digits(),
    "image-folder": _open_folder,
    "image-table": lambda recipe: open_image_table(
        recipe.data_dir, asked=table_request(recipe), request=_image_request(recipe)
    ),
    "imagenet": _open_folder,
    "isbi2012": _open_isbi2012,
    "mask-folder": _open_mask_folder,
    "mnist": lambda recipe: open_mnist(recipe.data_dir),
    "packed": lambda recipe: open_packed(recipe.data_dir, request=_image_request(recipe)),
    "synthetic": _open_synthetic,
    "synthetic-em": _open_synthetic_em,
}


def _arrange(splits: DataSplits, *, recipe: Recipe, default_fraction: float = 0.0) -> DataSplits:
    splits = _with_asked_shape(splits, recipe=recipe)
    if recipe.folds is not None and recipe.fold is not None:
        return _limit(_take_fold(splits, recipe=recipe), recipe=recipe)
    fraction = default_fraction if recipe.validation_fraction is None else recipe.validation_fraction
    is_in_order = recipe.dataset == _HELD_OUT_IN_ORDER and recipe.validation_fraction is None
    if fraction and not is_in_order:
        return _limit(_hold_out(splits, fraction=fraction, recipe=recipe), recipe=recipe)
    splits = replace(splits, warnings=[*splits.warnings, *idle_split_warnings(splits, recipe=recipe)])
    if is_in_order:
        splits = _with_parts(splits, *system_a_split(len(splits.train)))
    return _limit(splits, recipe=recipe)


def _take_fold(splits: DataSplits, *, recipe: Recipe) -> DataSplits:
    assert recipe.folds is not None
    assert recipe.fold is not None
    if not splits.spec.has_dense_labels:
        return take_fold(
            splits, folds=recipe.folds, fold=recipe.fold, seed=recipe.seed, groups=groups_of(splits, recipe)
        )
    train, validation = fold_indices(
        recipe.fold_scheme,
        samples=len(splits.train),
        folds=recipe.folds,
        fold=recipe.fold,
        seed=recipe.seed,
        groups=groups_of(splits, recipe),
    )
    return _with_parts(splits, train, validation)


def _with_parts(splits: DataSplits, train: NDArray[np.int64], validation: NDArray[np.int64]) -> DataSplits:
    """Splits the training samples in two; an existing validation set becomes the test set."""
    return replace(
        splits,
        train=SubsetSource(splits.train, train),
        validation=SubsetSource(splits.train, validation),
        test=splits.test if splits.test is not None else splits.validation,
    )


def _with_asked_shape(splits: DataSplits, *, recipe: Recipe) -> DataSplits:
    spec, channels, num_classes = splits.spec, recipe.channels, recipe.num_classes
    if recipe.input_kind not in ("auto", spec.input_kind):
        raise BadInputError(
            f"--input-kind {recipe.input_kind} does not match the data, which are "
            f"{plural_of(spec.input_kind)}; leave it out, or give the data as an array."
        )
    if channels is not None and channels != spec.channels:
        raise BadInputError(
            f"--channels {channels} does not match the data, whose {plural_of(spec.input_kind)} have "
            f"{spec.channels}; leave it out "
            f"or use --channels {spec.channels}."
        )
    if num_classes is None:
        return splits
    ignored = len(spec.ignored_classes)
    least = spec.num_classes + ignored
    if num_classes < least:
        raise BadInputError(
            f"--num-classes {num_classes} is less than the {least} classes of the data; use "
            f"--num-classes {least} or more."
        )
    return replace(splits, spec=spec.with_num_classes(num_classes - ignored))


def _hold_out(splits: DataSplits, *, fraction: float, recipe: Recipe) -> DataSplits:
    """Holds out validation samples; an existing validation set becomes the test set."""
    samples = len(splits.train)
    count = held_out_count(samples, fraction=fraction)
    labels = labels_of(splits.train) if recipe.split_scheme == "stratified" else None
    order = held_out_order(samples, labels=labels, seed=recipe.seed)
    groups = groups_of(splits, recipe)
    is_held_out = np.zeros(samples, dtype=bool)
    if groups is None:
        is_held_out[order[:count]] = True
    else:
        is_held_out = hold_out_groups(groups, count=count, labels=labels, seed=recipe.seed)
        order, count = np.argsort(~is_held_out, kind="stable"), int(is_held_out.sum())
    divided = _with_parts(splits, np.flatnonzero(~is_held_out), np.flatnonzero(is_held_out))
    warnings = unvalidated_classes(
        splits,
        order=order,
        count=count,
        fraction=fraction,
        takes_folder=recipe.dataset in _TAKE_VAL_FOLDERS,
        has_groups=groups is not None,
    )
    return replace(divided, warnings=[*divided.warnings, *warnings])


def _limit(splits: DataSplits, *, recipe: Recipe) -> DataSplits:
    warnings = list(splits.warnings)
    train, validation = splits.train, splits.validation
    if recipe.limit_train_samples is not None:
        train = _first_samples(train, limit=recipe.limit_train_samples, part="train", warnings=warnings)
    if recipe.limit_validation_samples is not None:
        limit = recipe.limit_validation_samples
        if validation is None:
            options = options_to_hold_out(recipe, train)
            warnings.append(
                f"--limit-validation-samples {limit} has no effect: there are no validation samples; leave "
                f"it out{'' if options is None else f', or use {options} to hold some out'}."
            )
        else:
            validation = _first_samples(validation, limit=limit, part="validation", warnings=warnings)
    return replace(splits, train=train, validation=validation, warnings=warnings)


def _first_samples(source: Source, *, limit: int, part: str, warnings: list[str]) -> Source:
    if limit > len(source):
        warnings.append(
            f"--limit-{part}-samples {limit} is more than the {len(source)} available samples; all are used."
        )
    return SubsetSource(source, _spread(source, limit=limit)) if limit < len(source) else source


def _spread(source: Source, *, limit: int) -> NDArray[np.int64]:
    """The first samples; if sorted by class, evenly spaced ones, as the first would all be of one class."""
    first = np.arange(limit, dtype=np.int64)
    labels = known_labels_of(source)
    is_sorted = labels is not None and labels.ndim == 1 and bool((np.diff(labels) >= 0).all())
    return first * len(source) // limit if is_sorted else first


def _require_no_size(recipe: Recipe) -> None:
    if recipe.dataset_size is not None:
        raise BadInputError(
            f"--dataset-size {recipe.dataset_size} is for generated data sets; for other data, use "
            f"--limit-train-samples {recipe.dataset_size}."
        )
