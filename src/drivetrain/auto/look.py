"""Looks at the data in a folder: opens it as it is, measures it and draws it."""

from drivetrain.auto.choose import open_whole
from drivetrain.catalogue.data_sets import dataset_task
from drivetrain.catalogue.tasks import DEFAULT_TASK, task_info
from drivetrain.data.finding.found_data import FoundData
from drivetrain.data.fingerprint.fingerprint import Fingerprint
from drivetrain.data.fingerprint.measure import measure
from drivetrain.pictures.data_picture import PictureSamples, data_picture
from drivetrain.recipe.load import resolve_recipe

__all__ = ["look_at"]


def look_at(found: FoundData, *, title: str) -> tuple[Fingerprint, bytes]:
    """The fingerprint of a folder's data and their picture; files that cannot be read are left out."""
    model = task_info(dataset_task(found.dataset) or DEFAULT_TASK).example_model
    options = {
        "dataset": found.dataset,
        "data_dir": str(found.data_dir),
        "model": model,
        "on_bad_sample": "skip",
        **found.options,
    }
    data = open_whole(resolve_recipe(overrides=options, decided={}).recipe)
    measured = measure(data, dataset=found.dataset, keeps=PictureSamples().keeps)
    return measured.fingerprint, data_picture(measured, title=title)
