"""The rules for weights from elsewhere: one place to start from, and one that exists for the model."""

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.given import Given
from drivetrain.recipe.messages import place


def check_weights(given: Given) -> None:
    """--pretrained excludes --init-from; without a path it needs a library that publishes weights."""
    from drivetrain.catalogue.libraries import is_library_model

    recipe = given.recipe
    if recipe.pretrained is False:
        return
    if recipe.init_from is not None:
        raise BadInputError(
            f"{given.option('pretrained')} and {given.option('init_from')} both set the weights to start "
            "from; leave one out."
        )
    if recipe.pretrained is True and not given.is_asked("model"):
        raise BadInputError(
            f"{place(given.origins.get('pretrained', ''))}--pretrained alone needs a library's model, of "
            "which weights are published: add --model timm/resnet18 (`pip install -e .[timm]` installs it), "
            "or give a path, as in --pretrained FILE."
        )
    if recipe.pretrained is True and not is_library_model(recipe.model):
        raise BadInputError(
            f"{place(given.origins.get('pretrained', ''))}--pretrained needs a path with --model "
            f"{recipe.model}, of which no weights are published; --pretrained FILE works, or a library's "
            "model such as --model timm/resnet18."
        )
