"""What all other code knows about a library of models: their names, facts about one, and how to build it.

Nothing here imports torch or a library: a recipe is checked before they are loaded.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol

from drivetrain.catalogue.libraries import LibraryInfo, library_of
from drivetrain.catalogue.tasks import TaskName

if TYPE_CHECKING:
    from torch import nn

__all__ = ["LibraryModel", "ModelLibrary", "library_for", "library_named"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LibraryModel:
    """A model of a library before it is built; `name` has the library's prefix.

    `image_size` is the side of the images that the model was designed for. `mean` and `std` normalise pixels
    from 0 to 1, one value per channel. `task` is None if the data decide it.
    """

    name: str
    channels: int
    num_classes: int
    image_size: int
    task: TaskName | None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    min_image_size: int = 1
    image_size_step: int = 1
    """The valid image sizes are multiples of it."""
    description: str = ""
    license: str | None = None
    origin: str | None = None
    """Where the library's own weights come from: a hub's repository or an address."""


class ModelLibrary(Protocol):
    """The models of one library. Names are given without the library's prefix.

    Nothing here downloads anything. An unknown name, a parameter or a shape that the library refuses raises
    BadInputError.
    """

    def names(self) -> list[str]:
        """All names, for lists and for the nearest name."""
        ...

    def facts(self, name: str, *, params: Mapping[str, Any]) -> LibraryModel:
        """What is known about a model without building it; `params` are those of `--model-params`."""
        ...

    def build(
        self,
        name: str,
        *,
        channels: int,
        image_size: int,
        num_classes: int,
        task: TaskName,
        params: Mapping[str, Any],
    ) -> "nn.Module":
        """The model with random weights, drawn from torch's generator; it returns one tensor of logits.

        Its parameters have the names that they have in the library.
        """
        ...


def library_for(name: str) -> tuple[ModelLibrary, str]:
    """The library of a model and the model's name there: `timm/resnet18` is resnet18 of timm."""
    return library_named(library_of(name)), name.partition("/")[2]


def library_named(info: LibraryInfo) -> ModelLibrary:
    """A library; raises BadInputError if its package is not installed."""
    info.require_package()
    module_name, _, class_name = info.adapter.partition(":")
    library: ModelLibrary = getattr(import_module(module_name), class_name)()
    return library
