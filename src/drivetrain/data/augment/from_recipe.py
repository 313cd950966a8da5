"""Builds the augmentation that a recipe asks for, for images with or without masks."""

from drivetrain.catalogue.data_sets import dataset_info, is_augmented_by_default, is_external_dataset
from drivetrain.core.errors import BadInputError
from drivetrain.data.augment.chain import Augmentation, DenseAugmentation, augments_at_decode
from drivetrain.data.augment.crop_and_resize import CropAndResize
from drivetrain.data.augment.flip import DenseFlip, Flip
from drivetrain.data.augment.intensity import Brightness, Gamma, Noise
from drivetrain.data.augment.mixup import Mixup
from drivetrain.data.augment.rand_augment import RandAugment
from drivetrain.data.augment.random_crop import PaddedCrop, ResizedCrop
from drivetrain.data.augment.technique import DenseTechnique, Technique
from drivetrain.data.augment.warp import Elastic, Rotate, largest_shift
from drivetrain.data.preprocess import DensePreprocess
from drivetrain.data.source import DataSpec, Source
from drivetrain.recipe.params import FlipDirection
from drivetrain.recipe.schema import Recipe

# Data sets whose images come from files of any size.
_NEVER_PADDED = ("image-folder", "image-table", "imagenet", "packed")


def flip_directions(recipe: Recipe, *, auto: tuple[FlipDirection, ...]) -> tuple[FlipDirection, ...]:
    """The directions in which training images are mirrored; `auto` where --random-flips leaves it open."""
    if recipe.augment is False or recipe.random_flips == "none":
        return ()
    if recipe.random_flips == "auto":
        return auto
    return ("horizontal", "vertical") if recipe.random_flips == "both" else (recipe.random_flips,)


def build_augmentation(recipe: Recipe, spec: DataSpec, *, source: Source) -> Augmentation | None:
    """Builds the augmentation of a recipe's training images; None if it changes nothing.

    --augment flips images horizontally, unless --random-flips says otherwise. It also crops those that do not
    come from files of any size after padding with 4 pixels; --random-resized-crop replaces that crop.
    """
    _require_8_bits(recipe, spec)
    dataset = "" if is_external_dataset(recipe.dataset) else dataset_info(recipe.dataset).name
    own_changes = is_augmented_by_default(recipe.dataset) if recipe.augment is None else recipe.augment
    share = None if recipe.augment is False else recipe.random_resized_crop
    is_padded = own_changes and dataset not in _NEVER_PADDED and share is None
    pixel_techniques: list[Technique] = []
    if share is not None and not augments_at_decode(source):
        pixel_techniques.append(_resized_crop(share, spec=spec, image_size=recipe.image_size))
    pixel_techniques += map(Flip, flip_directions(recipe, auto=("horizontal",) if own_changes else ()))
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


def _require_8_bits(recipe: Recipe, spec: DataSpec) -> None:
    if recipe.rand_augment and spec.image_dtype != "uint8":
        raise BadInputError(
            f"--rand-augment {recipe.rand_augment} needs 8-bit images, but these are {spec.image_dtype}; "
            "use --rand-augment 0."
        )


def build_dense_augmentation(
    recipe: Recipe, spec: DataSpec, *, preprocess: DensePreprocess
) -> DenseAugmentation | None:
    """Builds the augmentation of a recipe's training images and masks; None if it changes nothing.

    Images are flipped as --random-flips says unless --augment False. --augment adds CropAndResize and
    Brightness. --rotate and --elastic come before the crop, because they expect the padding at the border of
    the canvas. --gamma and --noise come last.
    """
    _require_8_bits_of_masked(recipe, spec)
    techniques: list[DenseTechnique] = []
    techniques += map(DenseFlip, flip_directions(recipe, auto=("horizontal", "vertical")))
    techniques += _bending(recipe, spec, preprocess=preprocess)
    if recipe.augment:
        techniques += [CropAndResize(num_classes=spec.label_values), Brightness()]
    if recipe.gamma:
        techniques.append(Gamma(spread=recipe.gamma))
    if recipe.noise:
        techniques.append(Noise(deviation=recipe.noise))
    return DenseAugmentation(recipe.seed, tuple(techniques)) if techniques else None


def _bending(recipe: Recipe, spec: DataSpec, *, preprocess: DensePreprocess) -> list[DenseTechnique]:
    classes, padding = spec.label_values, preprocess.padding
    techniques: list[DenseTechnique] = []
    if recipe.rotate:
        techniques.append(Rotate(degrees=recipe.rotate, num_classes=classes, padding=padding))
    if recipe.elastic:
        side = min(preprocess.height, preprocess.width) - 2 * padding
        if recipe.elastic > largest_shift(side):
            raise BadInputError(
                f"--elastic {recipe.elastic:g} would fold training images of {side} pixels over themselves; "
                f"--elastic {largest_shift(side):g} works."
            )
        techniques.append(Elastic(shift=recipe.elastic, num_classes=classes, padding=padding))
    return techniques


def _require_8_bits_of_masked(recipe: Recipe, spec: DataSpec) -> None:
    if spec.image_dtype == "uint8":
        return
    for is_asked, option, instead in (
        (bool(recipe.augment), "--augment, which clips brightness,", "--augment False"),
        (bool(recipe.gamma), f"--gamma {recipe.gamma:g}", "--gamma 0"),
    ):
        if is_asked:
            raise BadInputError(
                f"{option} needs 8-bit images, but these are {spec.image_dtype}; use {instead}."
            )
