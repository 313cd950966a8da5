"""The image sizes that a library's model accepts."""

from collections.abc import Sequence

from drivetrain.catalogue.libraries import is_library_model
from drivetrain.core.errors import BadInputError
from drivetrain.data.source import DataSpec
from drivetrain.models.libraries.library import LibraryModel, library_for
from drivetrain.recipe.schema import Recipe

__all__ = ["require_fitting_images", "require_size"]


def require_fitting_images(recipe: Recipe, spec: DataSpec) -> None:
    """Refuses a size of the data that a library's model would refuse, before anything is written."""
    if not is_library_model(recipe.model) or recipe.image_size is not None or spec.tile is not None:
        return
    library, own_name = library_for(recipe.model)
    facts = library.facts(own_name, params=recipe.model_params)
    options = ("--tile-size", "--image-size") if spec.has_dense_labels else ("--image-size",)
    require_size(facts, spec.height, spec.width, options=options)


def require_size(facts: LibraryModel, height: int, width: int, *, options: Sequence[str]) -> None:
    """Refuses images of a height and width; `options` can change them."""
    smallest, step = facts.min_image_size, facts.image_size_step
    side = min(height, width)
    if side >= smallest and not height % step and not width % step:
        return
    rule = f"at least {smallest}" if step == 1 else f"at least {smallest} and a multiple of {step}"
    works = max(-(-smallest // step), side // step) * step
    ways = " or ".join(f"{option} {works}" for option in options)
    raise BadInputError(
        f"Images of {height}x{width} pixels do not fit {facts.name}, whose sides must be {rule}; "
        f"{ways} works."
    )
