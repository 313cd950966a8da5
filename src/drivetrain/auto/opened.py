"""Opens the data of a plan where only the files tell how many images and classes there are."""

from dataclasses import replace

from drivetrain.catalogue.data_sets import is_folder_of_files
from drivetrain.recipe.load import ResolvedRecipe

__all__ = ["with_fingerprint"]


def with_fingerprint(resolved: ResolvedRecipe) -> ResolvedRecipe:
    """Opens a user's own folder, whose size and classes only its files tell."""
    recipe = resolved.recipe
    is_own = is_folder_of_files(recipe.dataset) and recipe.data_dir is not None
    if resolved.fingerprint is not None or not is_own or recipe.dataset_size is not None:
        return resolved
    # Other plans need no torch, which is slow to import.
    from drivetrain.auto.choose import fingerprint_of

    return replace(resolved, fingerprint=fingerprint_of(recipe).as_json())
