"""The rules for tasks: model, data set and options must belong to one task.

An option's task is a mark on its field in `recipe/schema.py` (`OfTask`).
"""

from drivetrain.catalogue.tasks import TASKS, task_info
from drivetrain.core.errors import BadInputError
from drivetrain.recipe.fields import fields_of_task
from drivetrain.recipe.given import Given

_WITH_WHITE_LEVEL = ("image-folder", "image-table", "mask-folder")
TABLE_FIELDS = ("label_table", "file_column", "label_column")


def check_task(given: Given) -> None:
    """Model and data set must have the same task, and every option must belong to it."""
    from drivetrain.catalogue.data_sets import dataset_task
    from drivetrain.catalogue.models import check_image_size, is_external_model, model_info, model_task

    of_data, of_model = dataset_task(given.recipe.dataset), model_task(given.recipe.model)
    if of_data is not None and of_model is not None and of_data != of_model:
        raise BadInputError(
            f"{given.option('model')} is for {of_model} and {given.option('dataset')} for {of_data}; "
            f"--model {task_info(of_data).example_model} or "
            f"--dataset {task_info(of_model).example_dataset} works."
        )
    is_dense = of_model is not None and task_info(of_model).has_dense_labels
    if is_dense and given.recipe.image_size is not None and not is_external_model(given.recipe.model):
        check_image_size(model_info(given.recipe.model), given.recipe.image_size)
    task = of_data or of_model
    if task is not None:
        check_task_options(given, task=task)


def check_task_options(given: Given, *, task: str) -> None:
    """Refuses a model and options of another task, once the task of the data is known."""
    from drivetrain.catalogue.models import model_task

    if model_task(given.recipe.model) not in (None, task):
        raise BadInputError(
            f"{given.option('model')} is for {model_task(given.recipe.model)}, but the data are for {task}; "
            f"--model {task_info(task).example_model} works."
        )
    for other in (info.name for info in TASKS if info.name != task):
        asked = next((field for field in fields_of_task(other) if given.is_asked(field)), None)
        if asked is not None:
            raise BadInputError(f"{given.option(asked)} is for {other}, and this is {task}; leave it out.")


def check_table(given: Given) -> None:
    """The options that name a table and its columns are for one data set."""
    asked = next((field for field in TABLE_FIELDS if given.is_asked(field)), None)
    if asked is not None and given.recipe.dataset != "image-table":
        raise BadInputError(
            f"{given.option(asked)} is for --dataset image-table, and this is --dataset "
            f"{given.recipe.dataset}; leave it out."
        )


def check_white_level(given: Given) -> None:
    """Refuses a white level of data whose files are read in another way."""
    recipe = given.recipe
    if recipe.white_level is not None and recipe.dataset not in _WITH_WHITE_LEVEL:
        raise BadInputError(
            f"{given.option('white_level')} is for --dataset image-folder, image-table or mask-folder, and "
            f"this is --dataset {recipe.dataset}; leave it out."
        )


def check_segmentation(given: Given) -> None:
    """Checks the options of segmentation: tile size, and the weights of the loss."""
    recipe = given.recipe
    if recipe.tile_size is not None and recipe.image_size is not None:
        raise BadInputError(
            f"{given.option('tile_size')} keeps the images' own resolution and {given.option('image_size')} "
            "changes it; leave one out."
        )
    if recipe.cross_entropy_weight == 0 and recipe.dice_weight == 0:
        raise BadInputError(
            "--cross-entropy-weight 0 and --dice-weight 0 leave no loss; --dice-weight 1 works."
        )
    if recipe.cross_entropy_weight == 0 and (recipe.class_weights or recipe.border_weight):
        field = "class_weights" if recipe.class_weights else "border_weight"
        raise BadInputError(
            f"{given.option(field)} weights the cross-entropy, which {given.option('cross_entropy_weight')} "
            "turns off; --cross-entropy-weight 1 works."
        )
