"""From a recipe to the augmentation of its training images and masks."""

from drivetrain.core.errors import BadInputError
from drivetrain.data.augment.crop_and_resize import CropAndResize
from drivetrain.data.augment.dense_chain import DenseAugmentation
from drivetrain.data.augment.dense_technique import DenseTechnique
from drivetrain.data.augment.flip import DenseFlip
from drivetrain.data.augment.gamma import Gamma
from drivetrain.data.augment.intensity import Brightness
from drivetrain.data.augment.noise import Noise
from drivetrain.data.augment.rotate import Rotate
from drivetrain.data.augment.warp import Elastic, largest_shift
from drivetrain.data.dense_preprocess import DensePreprocess
from drivetrain.data.source import DataSpec
from drivetrain.recipe.schema import Recipe


def build_dense_augmentation(
    recipe: Recipe, spec: DataSpec, *, preprocess: DensePreprocess
) -> DenseAugmentation | None:
    """What a recipe does by chance to its training images and masks, or None where it does nothing.

    Images are flipped both ways unless --augment False. --augment adds a crop that is stretched back, and
    brightness. --rotate and --elastic come before the crop, while the padding is still at the border,
    --gamma and --noise at the end.
    """
    _require_known_range(recipe, spec)
    techniques: list[DenseTechnique] = []
    if _is_flipped(recipe):
        techniques += [DenseFlip("horizontal"), DenseFlip("vertical")]
    techniques += _bending(recipe, spec, preprocess=preprocess)
    if recipe.augment:
        techniques += [CropAndResize(num_classes=spec.num_classes), Brightness()]
    if recipe.gamma:
        techniques.append(Gamma(spread=recipe.gamma))
    if recipe.noise:
        techniques.append(Noise(deviation=recipe.noise))
    return DenseAugmentation(recipe.seed, tuple(techniques)) if techniques else None


def _is_flipped(recipe: Recipe) -> bool:
    return recipe.augment is not False


def _bending(recipe: Recipe, spec: DataSpec, *, preprocess: DensePreprocess) -> list[DenseTechnique]:
    classes, padding = spec.num_classes, preprocess.padding
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


def _require_known_range(recipe: Recipe, spec: DataSpec) -> None:
    if spec.image_dtype == "uint8":
        return
    for is_asked, option, instead in (
        (bool(recipe.augment), "--augment, which clips brightness,", "--augment False"),
        (bool(recipe.gamma), f"--gamma {recipe.gamma:g}", "--gamma 0"),
    ):
        if is_asked:
            raise BadInputError(
                f"{option} needs images of 8 bits, but these are {spec.image_dtype}; use {instead}."
            )
