"""What tasks there are, and what of each is known before any data or model are there."""

from dataclasses import dataclass
from typing import Final, Literal

__all__ = ["DEFAULT_TASK", "TASKS", "TaskInfo", "TaskName", "task_info"]

TaskName = Literal["classification", "segmentation"]

DEFAULT_TASK: Final[TaskName] = "classification"
"""What data and models are taken to be for where nobody says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskInfo:
    """How a task differs from the others; what needs torch or data is in `drivetrain.tasks`."""

    name: TaskName
    main_metric: str
    """Says which weights are best unless --best-by names another."""
    metrics: tuple[str, ...]
    """Those that do not belong to one class."""
    has_class_scores: bool
    """Whether each class has scores of its own beside them."""
    has_dense_labels: bool
    """Whether a label is a mask with a class for each pixel; else it is the class of the whole image."""
    takes_any_shape: bool
    """Whether one model goes over images of any height and width."""
    needs_two_classes: bool
    """Whether samples of a single class leave nothing to learn."""
    example_dataset: str
    example_model: str
    default_recipe: str | None
    """Fills in what was not asked for beside a model or data; None leaves that to the schema's defaults."""
    default_augmentation: str | None
    """What --augment means where nobody gives it; None leaves that to the data set."""
    validation_pixels: int
    """How many values of images a batch of a validation comfortably has."""
    verify_side: int
    """The side of images of which the deepest layers of such models still have some pixels."""


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
    """What is known of the task of this name."""
    return _BY_NAME[name]
