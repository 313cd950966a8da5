"""The form of what changes a model; whether it works is seen when the model is built."""

from drivetrain.core.errors import BadInputError
from drivetrain.core.shown import shown
from drivetrain.recipe.given import Given
from drivetrain.recipe.messages import place


def check_model_edits(given: Given) -> None:
    """Each edit is named package.module:function."""
    from drivetrain.catalogue.models import has_factory_form

    where = place(given.origins.get("model_edit", ""))
    for name in given.recipe.model_edit:
        if not has_factory_form(name):
            raise BadInputError(
                f"{where}--model-edit {shown(name)} does not have the form package.module:function, "
                "as in my_models:add_dropout."
            )
