"""What a command means that names no recipe: the embedded default, or the plain values of the schema.

A bare `train` runs the recipe `synthetic_em`; a segmentation's model or data alone take the rest from it.
A classification's model or data take the defaults of the schema, which are those of the recipe `digits`.
"""

from collections.abc import Sequence

from drivetrain.core.errors import BadInputError
from drivetrain.recipe.merging import Layer
from drivetrain.recipe.named import packaged_layers

_EMBEDDED = "synthetic_em"


def default_layers(asked: Sequence[Layer]) -> list[Layer]:
    """The layers under what was asked for, where no recipe was named."""
    from drivetrain.catalogue.data_sets import dataset_task
    from drivetrain.catalogue.models import model_task

    model, dataset = (_last_word(asked, field) for field in ("model", "dataset"))
    data_dir = _last_word(asked, "data_dir")
    if dataset is None and data_dir is not None:
        raise BadInputError(
            f"--data-dir {data_dir} says where data are, but not of which kind; --dataset mask-folder reads "
            "images with masks, --dataset image-folder a folder of images per class."
        )
    if model is None and dataset is None:
        return packaged_layers(_EMBEDDED)
    tasks = {
        None if model is None else model_task(model),
        None if dataset is None else dataset_task(dataset),
    }
    return packaged_layers(_EMBEDDED) if "segmentation" in tasks else []


def _last_word(layers: Sequence[Layer], field: str) -> str | None:
    words = [str(layer.values[field]) for layer in layers if field in layer.values]
    return words[-1] if words else None
