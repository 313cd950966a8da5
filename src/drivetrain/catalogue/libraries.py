"""The libraries whose models are chosen by name (`--model timm/resnet18`), without importing any of them."""

import re
from dataclasses import dataclass
from importlib.util import find_spec

from drivetrain.catalogue.tasks import TaskName
from drivetrain.core.errors import BadInputError
from drivetrain.core.wording import did_you_mean

__all__ = ["LibraryInfo", "is_library_model", "library_info", "library_of", "library_task"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryInfo:
    """A library of models: the prefix of their names, its package, and the extra that installs it."""

    prefix: str
    package: str
    extra: str
    adapter: str
    """`module:class` of its `ModelLibrary`, imported when one of its models is used."""
    example: str
    holds: str
    task: TaskName | None = None
    """The task of all its models; None if they differ."""
    segmentation_names: str | None = None
    """Where models differ in their task and the name tells it: the names of those for segmentation."""

    def require_package(self) -> None:
        """Refuses a library that is not installed, in a sentence that says what installs it."""
        if find_spec(self.package) is None:
            raise BadInputError(
                f"--model {self.prefix}/... needs the package {self.package}, which is not installed; "
                f"`pip install -e .[{self.extra}]` installs it."
            )

    def task_of(self, own_name: str) -> TaskName | None:
        """The task of a model; None if the data decide it."""
        if self.segmentation_names is None:
            return self.task
        is_dense = re.match(self.segmentation_names, own_name) is not None
        return "segmentation" if is_dense else "classification"


_LIBRARIES = {
    info.prefix: info
    for info in (
        LibraryInfo(
            prefix="timm",
            package="timm",
            extra="timm",
            adapter="drivetrain.models.libraries.timm:Timm",
            example="timm/resnet18",
            holds="classifiers",
            task="classification",
        ),
        LibraryInfo(
            prefix="torchvision",
            package="torchvision",
            extra="torchvision",
            adapter="drivetrain.models.libraries.torchvision:Torchvision",
            example="torchvision/resnet18",
            holds="classifiers and segmentation models",
            segmentation_names="(fcn|deeplabv3|lraspp)_",
        ),
        LibraryInfo(
            prefix="hf",
            package="transformers",
            extra="transformers",
            adapter="drivetrain.models.libraries.transformers:Transformers",
            example="hf/vit",
            holds="classifiers and segmentation models of transformers",
        ),
        LibraryInfo(
            prefix="smp",
            package="segmentation_models_pytorch",
            extra="smp",
            adapter="drivetrain.models.libraries.smp:Smp",
            example="smp/unet:resnet34",
            holds="segmentation models",
            task="segmentation",
        ),
        LibraryInfo(
            prefix="keras",
            package="keras",
            extra="keras",
            adapter="drivetrain.models.libraries.keras_applications:KerasApplications",
            example="keras/ResNet50",
            holds="classifiers of keras.applications",
            task="classification",
        ),
    )
}


def is_library_model(name: str) -> bool:
    """Whether a name has a library's form, PREFIX/NAME; a user's own factory contains no slash."""
    return "/" in name


def library_info(prefix: str, *, option: str) -> LibraryInfo:
    """A library by its prefix, as `option` named it; raises BadInputError for an unknown one."""
    if prefix not in _LIBRARIES:
        raise BadInputError(
            f"{option} {prefix} is not a known library of models.{did_you_mean(prefix, _LIBRARIES)} "
            f"Libraries: {', '.join(_LIBRARIES)}."
        )
    return _LIBRARIES[prefix]


def library_of(name: str) -> LibraryInfo:
    """The library of a model PREFIX/NAME; raises BadInputError for an unknown prefix."""
    prefix = name.partition("/")[0]
    if prefix not in _LIBRARIES:
        raise BadInputError(
            f"--model {name} begins with no known library.{did_you_mean(prefix, _LIBRARIES)} Libraries: "
            f"{', '.join(f'{known}/...' for known in _LIBRARIES)}; your own model is package.module:factory."
        )
    return _LIBRARIES[prefix]


def library_task(name: str) -> TaskName | None:
    """The task of a library's model by its name alone; None if the data decide it."""
    return library_of(name).task_of(name.partition("/")[2])
