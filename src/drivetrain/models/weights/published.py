"""The weights that a library publishes for its models: says and fetches what is missing, and loads them."""

import fcntl
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from drivetrain.catalogue.libraries import library_of
from drivetrain.catalogue.tasks import TaskName
from drivetrain.core.cache_folder import cache_folder
from drivetrain.core.errors import BadInputError
from drivetrain.core.factories import describe_failure
from drivetrain.models.weights.loading import load_tensors
from drivetrain.models.weights.origins import Origin

__all__ = ["PublishedWeights", "fetch_published", "load_published"]

_PUBLISHED_BY = {
    "timm": "timm:TimmWeights",
    "torchvision": "torchvision:TorchvisionWeights",
    "hf": "transformers:TransformersWeights",
    "smp": "smp:SmpWeights",
}
_MEGABYTE = 1e6


class PublishedWeights(Protocol):
    """How one library publishes weights. Names are given without the library's prefix."""

    def origin_of(self, name: str, *, params: Mapping[str, Any]) -> Origin:
        """Where the weights of a model are published; raises BadInputError if there are none."""
        ...

    def tensors_of(
        self, path: Path, name: str, *, image_size: int, task: TaskName, params: Mapping[str, Any]
    ) -> Mapping[str, Tensor]:
        """The tensors of the published file by the names that the library's model has.

        What the file does not hold, and the library would draw, is left out.
        """
        ...


def fetch_published(model: str, *, params: Mapping[str, Any], say: Callable[[str], None]) -> None:
    """Makes sure that a model's weights are in the local cache; says what is downloaded before it is."""
    publisher, name = _publisher_of(model)
    origin = publisher.origin_of(name, params=params)
    # Ranks that another launcher started get here at the same time; one of them downloads.
    with _alone_on_this_host():
        if origin.cached() is None:
            say(f"downloading the weights of {model} from {origin}{_size_text(origin)}")
            _download(origin, model)
        else:
            say(f"weights of {model}: {origin}, from the local cache")


def load_published(
    model: nn.Module, *, name: str, image_size: int, task: TaskName, params: Mapping[str, Any]
) -> list[str]:
    """Loads the weights that the library publishes for the model `name`, from its local cache."""
    publisher, own_name = _publisher_of(name)
    origin = publisher.origin_of(own_name, params=params)
    path = origin.cached()
    if path is None:
        raise BadInputError(_not_there(origin, name, reason="it is not in the local cache"))
    with torch.random.fork_rng(devices=[]):
        tensors = publisher.tensors_of(path, own_name, image_size=image_size, task=task, params=params)
    return load_tensors(model, tensors, given=f"--pretrained ({name})")


def _publisher_of(model: str) -> tuple[PublishedWeights, str]:
    library_of(model).require_package()
    prefix, _, name = model.partition("/")
    module, _, kind = _PUBLISHED_BY[prefix].partition(":")
    found: type[PublishedWeights] = getattr(import_module(f"{__package__}.published_by.{module}"), kind)
    return found(), name


def _size_text(origin: Origin) -> str:
    size = origin.size_bytes()
    return "" if size is None else f" ({size / _MEGABYTE:.0f} MB)"


def _download(origin: Origin, model: str) -> None:
    try:
        origin.download()
    except Exception as error:
        raise BadInputError(_not_there(origin, model, reason=_reason(error))) from error


def _reason(error: Exception) -> str:
    # The hub's own error for a missing network is a paragraph.
    is_offline = type(error).__name__ in ("LocalEntryNotFoundError", "OfflineModeIsEnabled", "URLError")
    return "it cannot be reached from here" if is_offline else describe_failure(error)


def _not_there(origin: Origin, model: str, *, reason: str) -> str:
    return (
        f"--pretrained: the weights of {model} could not be fetched from {origin} ({reason}); "
        f"{origin.how_to_place}, or give the file as --pretrained FILE."
    )


@contextmanager
def _alone_on_this_host() -> Iterator[None]:
    """Waits until no other process of this user on this host is in such a block."""
    folder = cache_folder()
    if folder is None:
        yield
        return
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "weights.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
