"""The rules for data that are not images: which options and models they leave without effect."""

from drivetrain.catalogue.input_kinds import InputKind, plural_of
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.fields import fields_with
from drivetrain.recipe.given import Given
from drivetrain.recipe.notes import Fact

__all__ = ["check_input_kind", "check_input_options", "refuse_image_options"]


def check_input_kind(given: Given) -> None:
    """--input-kind is for a user's own arrays; named data sets say what they are."""
    from drivetrain.catalogue.data_sets import is_external_dataset

    recipe = given.recipe
    if recipe.input_kind == "auto" or recipe.input_kind == "image":
        return
    if not is_external_dataset(recipe.dataset):
        raise BadInputError(
            f"{given.option('input_kind')} is for your own arrays, and --dataset {recipe.dataset} has "
            "images; leave it out, or use --dataset package.module:factory."
        )
    _refuse_models_of_images(given, words=f"{plural_of(recipe.input_kind)} ({given.option('input_kind')})")


def check_input_options(given: Given, *, kind: InputKind, words: str) -> None:
    """Refuses models and options that need images, once the data are known; `words` describe a sample."""
    if kind == "image":
        return
    _refuse_models_of_images(given, words=words)
    refuse_image_options(given, words=words)


def _refuse_models_of_images(given: Given, *, words: str) -> None:
    from drivetrain.catalogue.libraries import is_library_model
    from drivetrain.catalogue.models import is_external_model

    model = given.recipe.model
    if is_library_model(model) or not is_external_model(model):
        raise BadInputError(
            f"{given.option('model')} takes images, but the data are {words}; give a torch.nn.Module in "
            "Python, or --model package.module:factory."
        )


def refuse_image_options(given: Given, *, words: str) -> None:
    """Refuses options that need images, for data that are none; a model does not matter here."""
    for field in fields_with(Fact.OF_IMAGES):
        if given.is_asked(field) and given.value(field):
            raise BadInputError(
                f"{given.option(field)} needs images, but the data are {words}; leave it out."
            )
