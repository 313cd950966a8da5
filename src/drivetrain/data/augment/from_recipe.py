"""From a recipe to the augmentation of its training images."""

from drivetrain.catalogue.data_sets import dataset_info, is_augmented_by_default, is_external_dataset
from drivetrain.core.errors import BadInputError
from drivetrain.data.augment.at_decode import augments_at_decode
from drivetrain.data.augment.chain import Augmentation
from drivetrain.data.augment.flip import HorizontalFlip
from drivetrain.data.augment.mixup import Mixup
from drivetrain.data.augment.rand_augment import RandAugment
from drivetrain.data.augment.random_crop import PaddedCrop
from drivetrain.data.augment.resized_crop import ResizedCrop
from drivetrain.data.augment.technique import Technique
from drivetrain.data.source import DataSpec, Source
from drivetrain.recipe.schema import Recipe

_NEVER_PADDED = ("image-folder", "imagenet", "packed")


def build_augmentation(recipe: Recipe, spec: DataSpec, *, source: Source) -> Augmentation | None:
    """What a recipe does by chance to images of its training source, or None where it does nothing.

    A data set's own changes (--augment) are a flip and, unless its images come from files of any size, a
    crop with a border of 4 pixels; --random-resized-crop takes that crop's place.
    """
    _require_known_range(recipe, spec)
    dataset = "" if is_external_dataset(recipe.dataset) else dataset_info(recipe.dataset).name
    own_changes = is_augmented_by_default(recipe.dataset) if recipe.augment is None else recipe.augment
    share = None if recipe.augment is False else recipe.random_resized_crop
    is_padded = own_changes and dataset not in _NEVER_PADDED and share is None
    pixel_techniques: list[Technique] = []
    if share is not None and not augments_at_decode(source):
        pixel_techniques.append(_resized_crop(share, spec=spec, image_size=recipe.image_size))
    if own_changes:
        pixel_techniques.append(HorizontalFlip())
    if recipe.rand_augment:
        magnitude = recipe.rand_augment_magnitude
        pixel_techniques.append(RandAugment(operations=recipe.rand_augment, magnitude=magnitude))
    augmentation = Augmentation(
        seed=recipe.seed,
        on_pixels=tuple(pixel_techniques),
        on_normalised=(PaddedCrop(),) if is_padded else (),
        mixup=Mixup(alpha=recipe.mixup) if recipe.mixup else None,
    )
    return augmentation if augmentation.has_effect else None


def _resized_crop(smallest_share: float, *, spec: DataSpec, image_size: int | None) -> ResizedCrop:
    return ResizedCrop(
        smallest_share=smallest_share,
        height=spec.height,
        width=spec.width,
        size=(image_size or spec.height, image_size or spec.width),
    )


def _require_known_range(recipe: Recipe, spec: DataSpec) -> None:
    if recipe.rand_augment and spec.image_dtype != "uint8":
        raise BadInputError(
            f"--rand-augment {recipe.rand_augment} needs images of 8 bits, but these are {spec.image_dtype}; "
            "use --rand-augment 0."
        )
