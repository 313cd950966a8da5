"""The tasks (classification, segmentation) and how they differ; needs no data, model or torch."""

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["DEFAULT_TASK", "TASKS", "TaskInfo", "TaskName", "task_info"]

TaskName = Literal["classification", "segmentation"]

DEFAULT_TASK: Final[TaskName] = "classification"
"""The task that is assumed if neither data set nor model says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """The properties of a task; code that needs torch or data is in `drivetrain.tasks`."""

    name: TaskName
    main_metric: str
    """Selects the best checkpoint unless --best-by names another metric."""
    metrics: tuple[str, ...]
    """The metrics that do not belong to a single class."""
    has_class_scores: bool
    """Whether each class also has scores of its own."""
    has_dense_labels: bool
    """Whether a label is a mask with one class per pixel; otherwise it is one class per image."""
    takes_any_shape: bool
    """Whether one model accepts images of any height and width."""
    needs_two_classes: bool
    """Whether training needs samples of at least two classes."""
    example_dataset: str
    example_model: str
    default_recipe: str | None
    """The recipe that fills in the other options if only a model or data set is given; None: the schema."""
    default_augmentation: str | None
    """The default of --augment, as text; None: the data set decides."""
    validation_pixels: int
    """Number of image values in a validation batch of the default size."""
    verify_side: int
    """Side of the images in `verify`: large enough that the deepest layers still have several pixels."""


TASKS = (
    TaskInfo(
        name="classification",
        main_metric="accuracy",
        metrics=("accuracy", "top5_accuracy", "loss"),
        has_class_scores=False,
        has_dense_labels=False,
        takes_any_shape=False,
        needs_two_classes=True,
        example_dataset="digits",
        example_model="cifar_resnet8",
        default_recipe=None,
        default_augmentation=None,
        validation_pixels=8 * 1024 * 1024,
        verify_side=64,
    ),
    TaskInfo(
        name="segmentation",
        main_metric="dice",
        metrics=(
            "dice",
            "hard_dice",
            "iou",
            "pixel_accuracy",
            "loss",
            "foreground_soft_dice",
            "foreground_hard_dice",
            "foreground_iou",
        ),
        has_class_scores=True,
        has_dense_labels=True,
        takes_any_shape=True,
        needs_two_classes=False,
        example_dataset="synthetic-em",
        example_model="unet_same",
        default_recipe="synthetic_em",
        default_augmentation="flips",
        validation_pixels=5 * 512 * 1024,
        verify_side=32,
    ),
)

_BY_NAME: dict[str, TaskInfo] = {info.name: info for info in TASKS}


def task_info(name: str) -> TaskInfo:
    """The properties of a task by its name."""
    return _BY_NAME[name]
