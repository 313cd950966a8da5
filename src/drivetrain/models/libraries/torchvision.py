"""The classifiers and segmentation models of torchvision."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from torch import Tensor, nn

from drivetrain.catalogue.libraries import library_task
from drivetrain.catalogue.tasks import TaskName, task_info
from drivetrain.core.errors import BadInputError
from drivetrain.models.libraries.library import LibraryModel
from drivetrain.models.libraries.one_output import return_one
from drivetrain.models.libraries.params import attempt, refuse_option_keywords, unknown_name

_OPTIONS = {
    "num_classes": "--num-classes",
    "image_size": "--image-size",
    "input_size": "--image-size",
    "weights": "--pretrained",
    "weights_backbone": "--pretrained",
}
# Their weights differ, so nothing is taken over from any; a model without weights gets these.
_SIDE, _CLASSES, _SEGMENTED_CLASSES = 224, 1000, 21
_COLOURS = 3


class Torchvision:
    """The models of the package torchvision."""

    def names(self) -> list[str]:
        """The classifiers and the segmentation models; not those for detection, video or optical flow."""
        return _names()

    def facts(self, name: str, *, params: Mapping[str, Any]) -> LibraryModel:
        """What the transforms and notes of a model's default weights say, without downloading them."""
        refuse_option_keywords(params, _OPTIONS)
        _require_known(name)
        task = _task(name)
        weights = _default_weights(name)
        notes = {} if weights is None else weights.meta
        transforms = None if weights is None else weights.transforms()
        classes = _SEGMENTED_CLASSES if task_info(task).has_dense_labels else _CLASSES
        return LibraryModel(
            name=f"torchvision/{name}",
            channels=_COLOURS,
            num_classes=len(notes.get("categories") or ()) or classes,
            image_size=_side(transforms),
            task=task,
            mean=None if transforms is None else tuple(transforms.mean),
            std=None if transforms is None else tuple(transforms.std),
            min_image_size=max(notes.get("min_size") or (1,)),
            description=_description(name),
            origin=None if weights is None else weights.url,
        )

    def build(
        self,
        name: str,
        *,
        channels: int,
        image_size: int,
        num_classes: int,
        task: TaskName,  # noqa: ARG002
        params: Mapping[str, Any],
    ) -> nn.Module:
        """The model with random weights and without auxiliary classifiers."""
        refuse_option_keywords(params, _OPTIONS)
        _require_known(name)
        arguments = {**_settings(name, image_size=image_size), **params, "num_classes": num_classes}
        model = attempt(lambda: _made(name, arguments), name=f"torchvision/{name}")
        if channels != _COLOURS:
            _replace_first_convolution(model, channels=channels)
        return return_one(model, _segmented) if task_info(_task(name)).has_dense_labels else model


def _made(name: str, arguments: Mapping[str, Any]) -> nn.Module:
    from torchvision.models import get_model

    model: nn.Module = get_model(name, weights=None, **arguments)
    return model


def _segmented(output: Any, _images: Tensor) -> Tensor:
    logits: Tensor = output["out"]
    return logits


@cache
def _names() -> list[str]:
    from torchvision import models

    return [*models.list_models(module=models), *models.list_models(module=models.segmentation)]


def _require_known(name: str) -> None:
    if name in _names():
        return
    from torchvision import models

    if name in models.list_models():
        raise BadInputError(
            f"--model torchvision/{name} is a model for detection, video, optical flow or quantised weights, "
            "which are not supported; torchvision/resnet18 and torchvision/fcn_resnet50 work."
        )
    raise unknown_name(name, _names(), prefix="torchvision", what="a model of torchvision")


def _task(name: str) -> TaskName:
    return library_task(f"torchvision/{name}") or "classification"


def _default_weights(name: str) -> Any:
    from torchvision.models import get_model_weights

    return getattr(get_model_weights(name), "DEFAULT", None)


def _side(transforms: Any) -> int:
    """The side of the images that transforms make; those of segmentation models only resize."""
    size = getattr(transforms, "crop_size", None) or getattr(transforms, "resize_size", None)
    return _SIDE if not size else int(size[-1])


def _settings(name: str, *, image_size: int) -> dict[str, Any]:
    """What some constructors need, so that a model draws its weights, fits the images and has one output."""
    if task_info(_task(name)).has_dense_labels:
        alone = {} if name.startswith("lraspp") else {"aux_loss": False}
        return {"weights_backbone": None, **alone}
    if name in ("inception_v3", "googlenet"):
        return {"aux_logits": False, "init_weights": True}
    if name.startswith("vit_"):
        return {"image_size": image_size}
    return {"input_size": (image_size, image_size)} if name.startswith("maxvit") else {}


def _replace_first_convolution(model: nn.Module, *, channels: int) -> None:
    """A first convolution for images of other channels, initialised as the library initialised it."""
    path, first = next((path, part) for path, part in model.named_modules() if isinstance(part, nn.Conv2d))
    other = nn.Conv2d(
        channels,
        first.out_channels,
        first.kernel_size,  # type: ignore[arg-type]
        stride=first.stride,  # type: ignore[arg-type]
        padding=first.padding,  # type: ignore[arg-type]
        bias=first.bias is not None,
    )
    # Layers of these models are drawn around zero; the deviation falls with the number of inputs.
    scale = (first.in_channels / channels) ** 0.5
    nn.init.normal_(other.weight, std=float(first.weight.detach().std()) * scale)
    if other.bias is not None:
        nn.init.zeros_(other.bias)
    parent, _, leaf = path.rpartition(".")
    setattr(model.get_submodule(parent), leaf, other)


def _description(name: str) -> str:
    from torchvision.models import get_model_builder

    lines = (get_model_builder(name).__doc__ or "").strip().splitlines()
    return lines[0].strip() if lines else ""
