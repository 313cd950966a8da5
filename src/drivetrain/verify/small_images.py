"""Images of a size that a CPU goes through in a moment, for models and data that say what sizes they take."""

from drivetrain.catalogue.data_sets import dataset_info, is_external_dataset
from drivetrain.catalogue.models import is_external_model, model_info, nearest_image_size
from drivetrain.data.augment.warp import largest_shift
from drivetrain.recipe.given import Given
from drivetrain.recipe.schema import Recipe

__all__ = ["with_small_images"]

# What the deepest layers of a classifier and of a U-Net still have some pixels of.
_SIDE = {"classification": 64, "segmentation": 32}


def with_small_images(given: Given) -> tuple[Recipe, str]:
    """The recipe with its images scaled down where nobody typed their size, and what is said about it."""
    recipe = given.recipe
    is_own = is_external_model(recipe.model) or is_external_dataset(recipe.dataset)
    if is_own or given.is_typed("image_size") or given.is_typed("tile_size"):
        return recipe, ""
    side = nearest_image_size(recipe.model, _SIDE[model_info(recipe.model).task])
    known = recipe.image_size or recipe.tile_size or dataset_info(recipe.dataset).height
    if 0 < known <= side:
        return recipe, ""
    changes = {
        "image_size": side,
        "tile_size": None,
        "elastic": min(recipe.elastic, largest_shift(side)),
    }
    return recipe.model_copy(update=changes), f", {side}x{side} pixels (--image-size chooses another size)"
